"""SQLAlchemy's own suite for dialects, as the package has it, with the foreign keys of its tables left out (the
engine refuses them; the tests of foreign keys are skipped by requirements.py)."""

import pytest
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.schema import ForeignKeyConstraint
from sqlalchemy.testing.plugin.pytestplugin import *  # noqa: F401,F403

pytest.register_assert_rewrite("sqlalchemy.testing.assertions")


@compiles(ForeignKeyConstraint)
def without(constraint, compiler, **options):
    return None

"""What the server and the engine have, for SQLAlchemy's suite; it skips what is closed. Each closed one has its
reason; what is neither here is as the suite has it by default."""

from sqlalchemy.testing import exclusions
from sqlalchemy.testing.requirements import SuiteRequirements

# The engine's: foreign keys are refused. `foreign_key_ddl` stays open, or the suite's columns would lose the types
# that they have from there; conftest.py leaves the constraints out of CREATE TABLE.
NO_FOREIGN_KEYS = """
    foreign_keys self_referential_foreign_keys on_update_cascade
    foreign_key_constraint_reflection cross_schema_fk_reflection
"""
# The server's or the driver's, whatever the engine (InnoDB fails them alike):
# DATETIME and TIME without digits have no fractions; a parameter that is selected comes back as a string; LIMIT takes
# no expressions; VARCHAR needs a length; FLOAT has 4 bytes. Closed by default and left so: full Unicode in comments
# (the server has 3 bytes of UTF-8 there), ~ of a signed number (it is unsigned here).
NOT_THE_SERVERS = """
    datetime_microseconds time_microseconds
    datetime_implicit_bound date_implicit_bound time_implicit_bound
    sql_expression_limit_offset
    unbounded_varchar
    precision_generic_float_type
"""
# More than the suite expects of every server.
HAS = """
    autocommit savepoints isolation_level two_phase_transactions
    ctes window_functions intersect except_ update_from delete_from tuple_in
    views view_column_reflection view_reflection
    comment_reflection check_constraint_reflection column_collation_reflection
    unique_constraints_reflect_as_index unique_index_reflect_as_unique_constraints reflect_table_options unicode_ddl
    computed_columns computed_columns_stored computed_columns_virtual computed_columns_reflect_persisted
    server_defaults expression_server_defaults indexes_check_column_order
    datetime_historic date_historic json_type
    precision_numerics_enotation_small precision_numerics_many_significant_digits
    regexp_match regexp_replace emulated_lastrowid dbapi_lastrowid
    supports_bitwise_or supports_bitwise_and supports_bitwise_xor supports_bitwise_shift
    mod_operator_as_percent_sign order_by_label_with_expression boolean_col_expressions
    legacy_unconditional_json_extract uuid_data_type
"""


class Requirements(SuiteRequirements):
    def get_isolation_levels(self, config):
        levels = ["SERIALIZABLE", "READ UNCOMMITTED", "READ COMMITTED", "REPEATABLE READ", "AUTOCOMMIT"]
        return {"default": "REPEATABLE READ", "supported": levels}


for name in (NO_FOREIGN_KEYS + NOT_THE_SERVERS).split():
    setattr(Requirements, name, property(lambda self: exclusions.closed()))
for name in HAS.split():
    setattr(Requirements, name, property(lambda self: exclusions.open()))

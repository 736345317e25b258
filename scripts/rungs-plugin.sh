# Sourced by test.sh: the rungs of the plugin, which begin with its build.
plugin_tests=plugin/mariadb/tests
rung 1-plugin bash -c "bash plugin/mariadb/build.sh && python3 -B $plugin_tests/test_sql_scripts.py"
# Random statements from one seed, on InnoDB and on EVENKEEL.
rung 1-plugin-differential python3 -B "$plugin_tests"/test_differential.py 2 50000
# The same queries and changes under many plans, on both; every cell of path x type x partitioned was taken.
rung 1-plugin-plans python3 -B "$plugin_tests"/test_plans.py --seed 1
# Random tables with foreign keys and random statements on them, beside InnoDB.
rung 1-plugin-foreign python3 -B "$plugin_tests"/test_foreign.py 1 3000
# Random statements on a chunked table, beside InnoDB; about a minute.
rung 1-plugin-chunks python3 -B "$plugin_tests"/test_chunks.py 1 6000
# Salvage and dump of tables with foreign keys and collated primary keys, under servers.
rung 1-plugin-salvage python3 -B "$plugin_tests"/test_salvage.py
rung 1-plugin-sessions python3 -B "$plugin_tests"/test_sessions.py
rung 1-plugin-two-phase python3 -B "$plugin_tests"/test_two_phase.py
rung 1-plugin-crash python3 -B "$plugin_tests"/test_crash.py
# Parents and children written by sessions under kills, all rows compared after each restart.
rung 1-plugin-orphans python3 -B "$plugin_tests"/test_orphans.py
rung 1-plugin-xa-crash env EVENKEEL_KILLS=5 python3 -B "$plugin_tests"/test_xa_crash.py
rung 1-plugin-xa-states python3 -B "$plugin_tests"/test_xa_states.py
rung 1-plugin-two-engines env EVENKEEL_ROUNDS=2 python3 -B "$plugin_tests"/test_two_engines.py
rung 1-plugin-ddl-crash env EVENKEEL_SEED=1 python3 -B "$plugin_tests"/test_ddl_crash.py
rung 1-plugin-failures python3 -B "$plugin_tests"/test_failures.py
# Columns that were not read hold nonsense: those of reads by prefixes, by several handlers, beside open changes.
rung 1-plugin-poison python3 -B "$plugin_tests"/test_poison.py 0 evenkeel.prefix_reads evenkeel.plans evenkeel.clones \
    evenkeel.read_uncommitted evenkeel.pushdown
# Every code of an error at a client; every allocation of the plugin fails once; uninstalling beside users.
rung 1-plugin-faults python3 -B "$plugin_tests"/test_faults.py
rung 1-plugin-many-tables python3 -B "$plugin_tests"/test_many_tables.py
# Some of its alterations: a table of virtual functions, its order, the first, middle and last of classes.
rung 1-plugin-layout python3 -B "$plugin_tests"/test_layout.py \
    handler-function handler-order handlerton-last thd-middle table-first field
rung 1-plugin-install python3 -B "$plugin_tests"/test_install.py
rung 1-plugin-compat python3 -B "$plugin_tests"/test_compat.py
# What is in the Debian package; a release installs it.
rung 1-plugin-deb python3 -B "$plugin_tests"/test_deb.py contents
# The server's own tests of an engine, less than four minutes together.
rung 1-mtr bash scripts/test-mtr.sh all
# A part of the server's main suites with our engine in the place of the others, beside InnoDB's output.
rung 1-suites python3 -B "$plugin_tests"/suites.py run quick
# InnoDB's own tests of foreign keys, with our engine.
rung 1-suites-foreign python3 -B "$plugin_tests"/suites.py run foreign
# Faults planted in the plugin, in a build of its own, each caught by one test of our suite; users' has none of them.
rung 1-planted-plugin python3 scripts/test_planted.py plugin
rung 1-mtr-as-innodb bash scripts/test-mtr.sh as-innodb
rung 1-mtr-engines bash scripts/test-mtr.sh engines

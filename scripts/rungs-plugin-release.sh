# Sourced by test-release.sh: the rungs of the plugin.
plugin_tests=plugin/mariadb/tests
# Keys of every collation again, from a seed of this run's own, which the rung's line shows.
rung 1-plugin bash plugin/mariadb/build.sh
rung 1-plugin-collations env EVENKEEL_SEED="$RANDOM" EVENKEEL_PAIRS=20000 python3 -B "$plugin_tests"/test_sql_scripts.py
# Its self-test with every wrong header, and all of the plugin compiled with one.
rung 1-plugin-layout python3 -B "$plugin_tests"/test_layout.py
rung 1-plugin-layout-whole python3 -B "$plugin_tests"/test_layout.py whole
# The same with a seed of this run's own, which is printed.
rung 1-plugin-differential python3 -B "$plugin_tests"/test_differential.py "$RANDOM" 100000
rung 1-plugin-plans python3 -B "$plugin_tests"/test_plans.py --seed "$RANDOM" --rounds 4 --variants 4
rung 1-plugin-many-tables env EVENKEEL_TABLES=10000 python3 -B "$plugin_tests"/test_many_tables.py
rung 1-plugin-xa-crash env EVENKEEL_KILLS=40 python3 -B "$plugin_tests"/test_xa_crash.py
rung 1-plugin-two-engines env EVENKEEL_ROUNDS=10 python3 -B "$plugin_tests"/test_two_engines.py
# The server's end in front of every step of a DDL statement.
rung 1-plugin-ddl-crash env EVENKEEL_SEED="$RANDOM" EVENKEEL_DDL_KILLS=1000 python3 -B "$plugin_tests"/test_ddl_crash.py
# The server's main suites, each test with our engine in the place of the others, beside the server's own result or InnoDB's output.
rung 1-suites python3 -B "$plugin_tests"/suites.py run --jobs 4 \
    main innodb gcol vcol parts handler versioning period json binlog rpl sql_sequence
# Backups beside writers, restored under a second server.
rung 1-plugin-backup python3 -B "$plugin_tests"/test_backup.py
# Stock mariadb-backup beside an armed one: both engines and the binlog as of one moment.
rung 1-plugin-armed-backup python3 -B "$plugin_tests"/test_armed_backup.py
# Incremental backups beside writers, schema changes and loads, each restored and compared; bases that do not fit.
rung 1-plugin-increments python3 -B "$plugin_tests"/test_increments.py
# The longest value that the server lets through.
rung 1-plugin-large-blob python3 -B "$plugin_tests"/test_large_blob.py
# Programs of others: sysbench, mariadb-dump, iibench, an ORM.
rung 1-plugin-clients python3 -B "$plugin_tests"/test_clients.py
# The Debian package in a clean root beside a running server. Exit code 3: no root's rights, or an archive is out of reach.
for test in deb dashboards; do
    missing=0
    bash scripts/deps.sh deb && python3 -B "$plugin_tests"/test_$test.py needs || missing=$?
    if [ $missing = 3 ]; then
        echo "== rung 1-plugin-$test skipped: something is missing, as said above"
    else
        rung 1-plugin-$test python3 -B "$plugin_tests"/test_$test.py
        [ $test != deb ] || rung 1-plugin-deb-planted python3 -B "$plugin_tests"/test_deb.py planted
    fi
done

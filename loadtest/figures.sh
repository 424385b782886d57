# Figures of a run: time and CPU time, the tables, and the machine. Part of loadtest/run, which sources it.
# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154 # the names of processes, files and figures are loadtest/run's

# --- time ------------------------------------------------------------------------------------------------------------

now_ms() {
    # Shells before bash 5 have whole seconds only.
    if [[ ${EPOCHREALTIME:-} ]]; then
        echo "$((${EPOCHREALTIME//[.,]/} / 1000))"
    else
        echo "$(date +%s)000"
    fi
}

# Sums of CPU time in clock ticks: service, Redis, Postgres with all its processes. Nothing where there is no /proc.
server_ticks() {
    if [[ ! -r /proc/self/stat ]]; then return; fi
    # A process may end between being listed and being read.
    { cat /proc/[0-9]*/stat 2>/dev/null || true; } | awk -v service="$service" -v redis="$redis" -v postgres="$postgres" '
        {
            pid = $1
            sub(/^.*\) /, "")   # the name of a program may contain blanks
            own = $12 + $13
            if (pid == service) s = own
            if (pid == redis) r = own
            if (pid == postgres) p += own + $14 + $15
            if ($2 == postgres) p += own
        }
        END { print s + 0, r + 0, p + 0 }'
}

# Sets `ticks` to the CPU time of the ended children of this shell. Starts no process, which would be counted too.
child_ticks() {
    ticks=
    if [[ ! -r /proc/self/stat ]]; then return; fi
    local line fields
    read -r line <"/proc/$$/stat"
    read -r -a fields <<<"${line##*) }"
    ticks=$((fields[13] + fields[14]))
}

# --- one scenario ----------------------------------------------------------------------------------------------------

# A figure of the tool's line of JSON; 0 if it isn't there.
figure() { local value; value=$(field "$figures" "$1"); echo "${value:-0}"; }

# CPU in microseconds for each request, of each process; "n/a" where there is no /proc.
cpu_per_request() {
    awk -v before="$ticks_before" -v after="$ticks_after" -v client="$client_ticks" -v hz="$(getconf CLK_TCK)" \
        -v requests="$1" 'BEGIN {
            if (before == "" || requests == 0) { print "n/a | n/a | n/a | n/a"; exit }
            split(before, b, " "); split(after, a, " ")
            for (i = 1; i <= 3; i++) printf "%.0f | ", (a[i] - b[i]) * 1e6 / hz / requests
            printf "%.0f\n", client * 1e6 / hz / requests
        }'
}

# Puts the figures of the scenario on the screen and into the tables.
report() {
    local load=$1 requests rate latency="n/a | n/a | n/a" refused="" verdict=passed cpu code
    requests=$(figure requests)
    rate=$(awk -v n="$requests" -v ms="$(figure duration_ms)" 'BEGIN { if (ms) printf "%.0f", n * 1000 / ms; else print 0 }')
    if [[ $(field "$figures" p99_ms) ]]; then
        latency="$(figure p50_ms) | $(figure p95_ms) | $(figure p99_ms)"
    fi
    for code in sold_out already_claimed other unknown; do
        if [[ $(figure "$code") != 0 ]]; then refused="$refused, $code $(figure "$code")"; fi
    done
    refused=${refused#, }
    # An iteration that k6 could not begin in time never was a request.
    if [[ $(figure dropped) != 0 ]]; then load="$load, $(figure dropped) iterations not begun"; fi
    if [[ $problems ]]; then verdict=FAILED failed=yes; fi
    cpu=$(cpu_per_request "$requests")
    printf '%s: %s. %s requests, %s/s: accepted %s%s. ms p50 | p95 | p99: %s.\n' \
        "$scenario" "$load" "$requests" "$rate" "$(figure accepted)" "${refused:+, $refused}" "$latency"
    printf '  %s rows in Postgres, %s s until the last was written; reconcile agrees: %s.\n' "$sold" "$drained_s" "$agrees"
    printf '  CPU us per request, service | Redis | Postgres | client: %s.\n  %s\n' "$cpu" "$verdict"
    echo "| $scenario | $load | $requests | $(figure accepted) | ${refused:-none} | $rate | $latency | $sold | $drained_s | $agrees | $verdict |" \
        >>"$work/figures.md"
    echo "| $scenario | $cpu |" >>"$work/cpu.md"
    printf '%s' "$problems" | sed "s/^/* $scenario: /" >>"$work/problems.md"
}

# --- the machine
# -----------------------------------------------------------------------------------------------------

program_of() { ps -o args= -p "$1" | cut -d ' ' -f 1; }

machine() {
    local cpu memory
    if [[ $(uname) == Darwin ]]; then
        cpu=$(sysctl -n machdep.cpu.brand_string)
        memory=$(sysctl -n hw.memsize)
    else
        cpu=$(sed -n '/^model name/{s/^[^:]*: *//p;q;}' /proc/cpuinfo)
        memory=$(($(sed -n 's/^MemTotal: *\([0-9]*\) kB$/\1/p' /proc/meminfo) * 1024))
    fi
    echo "$(getconf _NPROCESSORS_ONLN) cores, ${cpu:-$(uname -m)}, $((memory / 1000000000)) GB of memory; load average at the start $load_average"
}

commit() {
    local id
    id=$(git rev-parse --short HEAD 2>/dev/null) || { echo unknown; return; }
    if [[ $(git status --porcelain -- . ':!loadtest/results') ]]; then id="$id, dirty"; fi
    echo "$id"
}

postgres_settings() {
    local psql
    psql=$(dirname "$(program_of "$postgres")")/psql
    [[ -x $psql ]] || psql=$(command -v psql) || { echo "settings unknown, psql is not here"; return; }
    "$psql" -X -At "$FLASH_SALE_DATABASE_URL" -c "SELECT string_agg(name || ' ' || setting, ', ' ORDER BY name) \
        FROM pg_settings WHERE name IN ('fsync', 'synchronous_commit', 'full_page_writes')" 5>&-
}

write_results() {
    local file=$1 file_system
    mkdir -p "$(dirname "$file")"
    file_system=$(df -PT "$work" 2>/dev/null | awk 'NR == 2 { print $2 }')
    {
        if [[ ! -s $file ]]; then printf '# Load test results\n'; fi
        printf '\n## %s, commit %s%s\n\n' "$(date -u '+%Y-%m-%d %H:%M UTC')" "$(commit)" "${short:+, short run}"
        printf '| | |\n|---|---|\n'
        printf '| machine | %s |\n' "$(machine)"
        printf '| system | %s; data on %s |\n' "$(uname -sr)" "${file_system:-an unknown file system}"
        printf '| flash-sale | %s; build: %s |\n' "$("$binary" --version)" "$build"
        printf '| Redis | %s; the service says: %s |\n' \
            "$("$(program_of "$redis")" --version | sed 's/ server v=\([^ ]*\).*/ \1/')" \
            "$(sed -n 's/^.* \(a 202 .*\)$/\1/p' "$work/service.err" | head -n 1)"
        printf '| Postgres | %s; %s |\n' \
            "$("$(program_of "$postgres")" --version | sed 's/^.*) //')" "$(postgres_settings)"
        printf '| tools | k6 %s, wrk %s |\n\n' "$(version_of "$k6" version)" "$(version_of "$wrk" --version)"
        printf '| scenario | load | requests | accepted | refused, unknown | requests/s | p50 ms | p95 ms | p99 ms | rows in Postgres | s until written | reconcile agrees | verdict |\n'
        printf '|---|---|---|---|---|---|---|---|---|---|---|---|---|\n'
        cat "$work/figures.md"
        printf '\nCPU in microseconds for each request, from the first request until the last row was written:\n\n'
        printf '| scenario | service | Redis | Postgres | client |\n|---|---|---|---|---|\n'
        cat "$work/cpu.md"
        if [[ -s $work/problems.md ]]; then printf '\nWhat failed:\n\n'; cat "$work/problems.md"; fi
    } >>"$file"
    say "the figures are in $file."
}

# wrk prints its version with an exit code of 1.
version_of() {
    if [[ -z $1 ]]; then echo "not used"; return; fi
    { "$@" 2>&1 || true; } | sed -n '1{s/^[a-z0-9]* *//;s/^debian\///;s/^v//;s/ .*//;p;}'
}

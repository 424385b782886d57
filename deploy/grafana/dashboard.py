#!/usr/bin/env python3
"""Prints the dashboard of flash-sale for Grafana, as JSON; with --queries its queries, one a line.

The JSON in flash-sale.json is this program's output and nothing else: `make observe` compares them. Metrics are those
of docs/metrics.md. Workers all tell the same of the stores, so their figures are joined by max and not by sum.
"""

import sys

from grafana_foundation_sdk.builders import dashboard, prometheus, stat, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import DataSourceRef

# Provisioned beside the dashboard (datasource.yml).
SOURCE = DataSourceRef(type_val="prometheus", uid="flash-sale")

# A range that holds a few scrapes, whatever the zoom.
RANGE = "$__rate_interval"

CLAIMS = 'flash_sale_http_request_duration_seconds_bucket{route="/v1/coupons/{id}/claims"}'


def quantile(part, buckets):
    return f"histogram_quantile({part}, sum by (le) (rate({buckets}[{RANGE}])))"


# Row, panels: title, unit, description, queries with their legends.
ROWS = [
    ("Is all well?", [
        ("Disagreements", "none", "Redis and Postgres, compared every ten minutes. Has to be 0.",
         [("max(flash_sale_reconcile_disagreements)", "disagreements")]),
        ("Losses of data in Redis", "none", "Since the processes started. Anything but 0 needs an operator.",
         [("sum(flash_sale_redis_data_lost_total)", "losses")]),
        ("Sales that don't conserve", "none", "Sales whose units and buyers don't add up to their total.",
         [("count(min by (coupon) (flash_sale_conserved) == 0) or vector(0)", "sales")]),
        ("Open dead letters", "none", "Accepted claims that could not become orders.",
         [("max(flash_sale_dead_letters_open)", "letters")]),
        ("Postponed items", "none", "Orders, payments and coupons that a job tries again.",
         [("sum(max by (name) (flash_sale_postponed_items)) or vector(0)", "items")]),
        ("Payments without an order", "none", "Money that no order can take.",
         [('max(flash_sale_payments_owed{status="held"})', "payments")]),
    ]),
    ("The crowd", [
        ("Claims by outcome", "reqps", "Each refusal by its code.",
         [(f"sum by (outcome) (rate(flash_sale_claims_total[{RANGE}]))", "{{outcome}}")]),
        ("Time of a claim", "s", "From the head of the request to the head of its reply.",
         [(quantile(0.5, CLAIMS), "half"), (quantile(0.99, CLAIMS), "99 of 100"), (quantile(0.999, CLAIMS), "999 of 1,000")]),
        ("Requests by class", "reqps", "5xx are failures of the service, or a store that is away.",
         [(f"sum by (class) (rate(flash_sale_http_request_duration_seconds_count[{RANGE}]))", "{{class}}")]),
        ("Refused without a look", "reqps", "Clients that ask too often, and requests without a right.",
         [(f"sum by (bound) (rate(flash_sale_rate_limited_total[{RANGE}]))", "{{bound}}"),
          (f"sum by (status) (rate(flash_sale_requests_refused_total[{RANGE}]))", "{{status}}")]),
    ]),
    ("From claim to row", [
        ("Waiting claims", "short", "Accepted claims that are no rows yet.",
         [("max(flash_sale_backlog_claims)", "waiting"), ("max(flash_sale_log_pending_entries)", "held by workers"),
          ("max(flash_sale_log_unread_entries)", "unread")]),
        ("Age of the oldest", "s", "Grows when no worker writes.",
         [("max(flash_sale_log_oldest_entry_seconds)", "oldest")]),
        ("Time from claim to row", "s", "By the clocks of Redis and of the worker.",
         [(quantile(0.5, "flash_sale_claim_to_row_seconds_bucket"), "half"),
          (quantile(0.99, "flash_sale_claim_to_row_seconds_bucket"), "99 of 100")]),
        ("Rows written", "wps", "By all workers.",
         [(f"sum(rate(flash_sale_orders_written_total[{RANGE}]))", "written"),
          (f"sum(rate(flash_sale_orders_repeated_total[{RANGE}]))", "there already")]),
    ]),
    ("Sales, orders and money", [
        ("Units left", "short", "By Redis; the newest 100 sales.",
         [('max by (coupon) (flash_sale_units{of="left"})', "coupon {{coupon}}")]),
        ("Units on their way back", "short", "Of cancelled, expired and refunded orders.",
         [("max(flash_sale_stock_returns_open)", "units")]),
        ("Oldest payment that waits", "s", "Held, and asked to go back.",
         [("max by (status) (flash_sale_payments_owed_oldest_seconds)", "{{status}}")]),
    ]),
    ("Processes", [
        ("Connections", "short", "Open ones of each process.",
         [("flash_sale_connections", "{{instance}}")]),
        ("Connections closed", "cps", "By reason.",
         [(f"sum by (reason) (rate(flash_sale_connections_closed_total[{RANGE}]))", "{{reason}}")]),
        ("Lanes closed", "short", "After a start or a loss of Redis; they open by themselves.",
         [("sum(flash_sale_lanes_closed_total)", "closures")]),
        ("Lanes that are closed", "short", "They take no claims until Redis has been compared with Postgres.",
         [("max(flash_sale_lanes_recovering)", "lanes")]),
        ("Time for which lanes were closed", "s", "By the processes that opened them.",
         [(quantile(0.5, "flash_sale_lane_closed_seconds_bucket"), "half")]),
        ("Claims of recoveries", "short", "Orders that only a process or only Redis knew, and claims that could not be kept.",
         [("sum by (outcome) (flash_sale_recovered_claims_total)", "{{outcome}}")]),
        ("Failures of jobs", "cps", "A store that was away, or an item that fails.",
         [(f"sum by (name) (rate(flash_sale_job_failures_total[{RANGE}]))", "{{name}}")]),
    ]),
]


def panel(kind, title, unit, description, queries, width, height):
    built = kind.Panel().title(title).description(description).unit(unit).datasource(SOURCE).span(width).height(height)
    if kind is timeseries:
        built = built.min(0)
    for number, (query, legend) in enumerate(queries):
        target = prometheus.Dataquery().expr(query).legend_format(legend).ref_id(chr(ord("A") + number))
        built = built.with_target(target)
    return built


def build():
    board = dashboard.Dashboard("flash-sale").uid("flash-sale").refresh("5s").time("now-15m", "now")
    for number, (row, panels) in enumerate(ROWS):
        board = board.with_row(dashboard.Row(row))
        for title, unit, description, queries in panels:
            kind, width, height = (stat, 4, 4) if number == 0 else (timeseries, 12, 8)
            board = board.with_panel(panel(kind, title, unit, description, queries, width, height))
    return board.build()


if sys.argv[1:] == ["--queries"]:
    for _, panels in ROWS:
        for _, _, _, queries in panels:
            for query, _ in queries:
                print(query)
else:
    print(JSONEncoder(sort_keys=True, indent=2).encode(build()))

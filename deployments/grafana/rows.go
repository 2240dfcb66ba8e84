package main

import "fmt"

// kind is how a panel shows its series.
type kind string

const (
	graph  kind = "graph" // lines
	stack  kind = "stack" // areas that add up
	number kind = "stat"  // the last value, large
	table  kind = "table" // the last values with all their labels
	ratio       = "percentunit"
	second      = "s"
	size        = "bytes"
	count       = "short"
	each        = "suffix:/s" // of things a second
	yesNo       = "bool_yes_no"
)

type (
	row struct {
		title  string
		panels []panel
	}
	panel struct {
		kind    kind
		title   string
		about   string // in words: what it shows, and what is good
		unit    string
		queries []query
	}
	query struct {
		expr   string
		legend string
	}
)

const (
	// ours are the processes of Trawl, by the names that prometheus.yml gives their jobs.
	ours = `{job=~".*trawl-(api|worker)"}`
	// noProbes leaves out what asks whether a process is well.
	noProbes = `route!~"/(healthz|readyz|metrics)"`
	// all leaves out nothing.
	all = ""
)

// quantiles asks for quantiles of a histogram over all that export it, of the series that are chosen.
func quantiles(metric, chosen string, of ...float64) []query {
	var out []query
	for _, q := range of {
		out = append(out, query{
			fmt.Sprintf("histogram_quantile(%g, sum by (le) (rate(%s_bucket%s[$__rate_interval])))", q, metric, chosen),
			fmt.Sprintf("p%g", q*100),
		})
	}
	return out
}

// rate asks for the sum of a counter of each process, split by a label.
func rate(metric, by string) query {
	return query{
		fmt.Sprintf("sum by (%s) (rate(%s[$__rate_interval]))", by, metric), "{{" + by + "}}",
	}
}

// some leaves out what is zero or not known, where a label has many values: a legend of all of them
// would be longer than the graph.
func some(q query) query { return query{q.expr + " > 0", q.legend} }

// total asks for the sum of a counter of each process.
func total(metric, legend string) query {
	return query{fmt.Sprintf("sum(rate(%s[$__rate_interval]))", metric), legend}
}

// shared asks for a gauge that every API exports for the whole cluster.
func shared(metric, legend string) query { return query{"max(" + metric + ")", legend} }

// sharedBy is shared, split by a label.
func sharedBy(metric, by string) query {
	return query{fmt.Sprintf("max by (%s) (%s)", by, metric), "{{" + by + "}}"}
}

// processes asks for a figure of each process.
func processes(expr string) []query {
	return []query{{fmt.Sprintf("sum by (job, instance) (%s)", expr), "{{job}} {{instance}}"}}
}

// rows is the dashboard, from the top.
func rows() []row {
	return []row{overview(), api(), crawling(), healing(), queue(), redis(), webhooks(), process()}
}

func overview() row {
	return row{"Overview", []panel{
		{
			number, "Pages",
			"Pages recorded a second, whatever their outcome, as the workers count that are there now.",
			each,
			[]query{
				{`sum(rate(trawl_pages_total{outcome=~"accepted|failed|skipped|alias"}[$__rate_interval]))`, "pages"},
			},
		},
		{number, "Jobs running", "Jobs past their tenant's gate.", count, []query{
			{`max(trawl_jobs{state="running"})`, "running"},
		}},
		{
			number, "URLs due",
			"URLs that a worker could take now. A site that is slow on purpose has many: more workers help where " +
				"tasks wait, too (Longest wait).",
			count,
			[]query{
				shared("trawl_frontier_due_urls", "due"),
			},
		},
		{
			number, "Workers",
			"Workers that have shown themselves to the queue. On a full Redis they cannot.",
			count,
			[]query{
				shared("trawl_queue_servers", "workers"),
			},
		},
		{
			number, "Redis memory",
			"Used of maxmemory, on the fullest node. From 95 % on submissions are refused and jobs slow down, from 98 % on they wait.",
			ratio,
			[]query{
				{"max(trawl_redis_memory_used_bytes / (trawl_redis_memory_max_bytes > 0))", "used"},
			},
		},
		{
			number, "API errors",
			"Share of the requests that were answered with 5xx, probes left out. No data: no API was scraped.",
			ratio,
			[]query{{
				`sum(rate(trawl_http_requests_total{` + noProbes + `, status=~"5.."}[$__rate_interval])) ` +
					`/ (sum(rate(trawl_http_requests_total{` + noProbes + `}[$__rate_interval])) > 0) ` +
					`or 0 * sum(rate(trawl_http_requests_total[$__rate_interval]))`,
				"5xx",
			}},
		},
		{table, "Alerts", "Alerts that fire now; deployments/RUNBOOK.md has a section for each.", count, []query{
			{`count by (alertname, severity) (ALERTS{alertname=~"Trawl.*", alertstate="firing"})`, ""},
		}},
		{
			stack, "Jobs",
			"Jobs that have not ended, by state. Queued are those that wait for their turn.",
			count,
			[]query{
				sharedBy("trawl_jobs", "state"),
			},
		},
		{
			stack, "Pages by outcome",
			"What became of URLs, a second. Retry, redirect, asked, released and stale are tries, no pages. What a worker " +
				"counted since its last scrape is lost when it is killed; the status of a job is exact.",
			each,
			[]query{
				rate("trawl_pages_total", "outcome"),
			},
		},
		{
			graph, "Frontier",
			"URLs of jobs that have not ended: waiting, held by workers, sent to wait; and those due now.",
			count,
			[]query{
				sharedBy("trawl_frontier_urls", "state"), shared("trawl_frontier_due_urls", "due"),
			},
		},
		{
			graph, "Longest wait",
			"The oldest job that waits for its turn, and the oldest task that waits for a worker.",
			second,
			[]query{
				shared("trawl_jobs_oldest_queued_seconds", "job"), shared("trawl_queue_oldest_pending_seconds", "task"),
			},
		},
		{
			graph, "Jobs ended",
			"Jobs that ended in five minutes, by how. Counted in Redis, over all tenants.",
			count,
			[]query{
				{"max by (state) (increase(trawl_jobs_ended_total[5m]))", "{{state}}"},
			},
		},
	}}
}

func api() row {
	return row{"API", []panel{
		{
			graph, "Requests",
			"Requests answered a second, by route; probes and scrapes left out.",
			each,
			[]query{rate("trawl_http_requests_total{"+noProbes+"}", "route")},
		},
		{
			graph, "Errors",
			"Requests a second that were answered with 4xx or 5xx, a /readyz that is not ready among them. " +
				"499: the caller went away.",
			each,
			[]query{{
				`sum by (status, route) (rate(trawl_http_requests_total{status=~"[45].."}[$__rate_interval])) > 0`,
				"{{status}} {{route}}",
			}},
		},
		{
			graph, "Duration, p99",
			"99 of 100 requests are answered within this time, by route; probes and scrapes left out. A cancel " +
				"may take 10 s.",
			second,
			[]query{{
				"histogram_quantile(0.99, " +
					"sum by (le, route) (rate(trawl_http_request_duration_seconds_bucket{" + noProbes +
					"}[$__rate_interval]))) > 0",
				"{{route}}",
			}},
		},
		{
			graph, "Duration of all",
			"Quantiles over all routes but those of probes and scrapes.",
			second, quantiles("trawl_http_request_duration_seconds", "{"+noProbes+"}", .5, .95, .99),
		},
		{
			graph, "In flight",
			"Requests that are being answered, by process; the scrape that counts them left out.",
			count,
			[]query{
				{"clamp_min(sum by (instance) (trawl_http_requests_in_flight) - 1, 0)", "{{instance}}"},
			},
		},
		{
			graph, "Submissions",
			"Submissions a second: created, replayed, or refused with the code of the fault.",
			each,
			[]query{
				{"sum by (outcome, code) (rate(trawl_submissions_total[$__rate_interval])) > 0", "{{outcome}} {{code}}"},
			},
		},
	}}
}

func crawling() row {
	return row{"Crawling", []panel{
		{
			graph, "Fetch",
			"Time to fetch and read one URL. It is mostly the sites' own.",
			second, quantiles("trawl_fetch_seconds", all, .5, .95, .99),
		},
		{
			graph, "In flight",
			"Requests to sites that are under way, and slices: turns of workers at jobs.",
			count,
			[]query{
				{"sum(trawl_fetches_in_flight)", "requests"}, {"sum(trawl_slices)", "slices"},
			},
		},
		{
			graph, "Host wait",
			"From the lease of a URL to its granted start: what politeness costs. What was sent back to wait for " +
				"its host is not in it, see Deferrals.",
			second, quantiles("trawl_host_wait_seconds", all, .5, .95),
		},
		{
			stack, "Failures by type",
			"Pages that failed, a second, by error_type.",
			each,
			[]query{some(rate("trawl_page_failures_total", "error_type"))},
		},
		{
			stack, "Skips by reason",
			"Pages that were admitted and then not wanted, a second.",
			each,
			[]query{rate("trawl_page_skips_total", "reason")},
		},
		{
			graph, "Received",
			"Bytes of decoded bodies that were read from sites, a second.",
			"Bps",
			[]query{total("trawl_fetched_bytes_total", "bytes")},
		},
		{
			stack, "Deferrals",
			"URLs sent back to wait, a second: for their host, a retry, robots.txt, or as the site asked (Retry-After).",
			each,
			[]query{rate("trawl_deferrals_total", "for")},
		},
		{
			graph, "Sitemaps",
			"Sitemaps by outcome, a second.",
			each,
			[]query{rate("trawl_sitemaps_total", "outcome")},
		},
	}}
}

func healing() row {
	return row{"Leases and healing", []panel{
		{
			graph, "Lease",
			"From the lease of a URL until its outcome is recorded; what is given back is not in it. A lease is " +
				"renewed, and lost 12 s after the last time.",
			second, quantiles("trawl_lease_seconds", `{outcome="recorded"}`, .5, .95, .99),
		},
		{
			graph, "Commit",
			"From the end of a fetch until its outcome is recorded, parsing and taking content included.",
			second, quantiles("trawl_commit_seconds", all, .5, .95, .99),
		},
		{
			graph, "Exchange",
			"One round trip of a slice to Redis: commits, leases and host slots together.",
			second, quantiles("trawl_exchange_seconds", all, .5, .95, .99),
		},
		{
			graph, "URLs a lease",
			"URLs granted by one lease, on average. Few, with many due, is much work for Redis.",
			count,
			[]query{
				{
					"sum(rate(trawl_leased_urls_sum[$__rate_interval])) " +
						"/ sum(rate(trawl_leased_urls_count[$__rate_interval]))",
					"URLs",
				},
			},
		},
		{
			graph, "Lost workers",
			"Slices of lost workers that were buried, and the URLs they gave back, in five minutes.",
			count,
			[]query{
				{"sum(increase(trawl_dead_slices_total[5m]))", "slices"},
				{"sum(increase(trawl_urls_given_back_total[5m]))", "URLs"},
			},
		},
		{
			graph, "In vain",
			"Stale: outcomes that came too late for their lease. Released: fetches broken off, since the " +
				"worker stops, or the job pauses or is cancelled.",
			each,
			[]query{
				rate(`trawl_pages_total{outcome=~"stale|released"}`, "outcome"),
			},
		},
		{
			graph, "Sweeps",
			"Looks for what is overdue, by result. Each worker pauses for 0.7 s between two of them.",
			each,
			[]query{rate("trawl_sweeps_total", "result")},
		},
		{
			graph, "Rings",
			"Rings of workers by result, and those of the API that the queue refused. The sweep repeats " +
				"what failed.",
			each,
			[]query{
				rate("trawl_rings_total", "result"), total("trawl_api_rings_failed_total", "failed in the API"),
			},
		},
	}}
}

func queue() row {
	return row{"Queue", []panel{
		{
			stack, "Tasks",
			"Tasks of asynq by state. Each is a ring for a job, so that few are enough.",
			count,
			[]query{sharedBy("trawl_queue_tasks", "state")},
		},
		{
			graph, "Oldest pending",
			"For how long the oldest task has waited for a worker.",
			second,
			[]query{shared("trawl_queue_oldest_pending_seconds", "age")},
		},
		{graph, "Slices", "Tasks that ended, a second, and those of them that ended with an error.", each, []query{
			{"max(rate(trawl_queue_processed_total[$__rate_interval]))", "ended"},
			{"max(rate(trawl_queue_failed_total[$__rate_interval]))", "failed"},
		}},
		{
			graph, "Workers",
			"Workers that have shown themselves to the queue in the last ten seconds.",
			count,
			[]query{shared("trawl_queue_servers", "workers")},
		},
		{
			graph, "Paused",
			"Whether somebody paused the queue: then no worker takes up a job.",
			yesNo,
			[]query{shared("trawl_queue_paused", "paused")},
		},
	}}
}

func redis() row {
	return row{"Redis", []panel{
		{graph, "Memory", "Used, and maxmemory. From 95 % on submissions are refused and jobs slow down, from 98 % on they wait.", size, []query{
			{"max by (node) (trawl_redis_memory_used_bytes)", "{{node}} used"},
			{"max by (node) (trawl_redis_memory_max_bytes)", "{{node}} max"},
		}},
		{
			graph, "Ping",
			"Time of a PING, by node, as the slowest API sees it.",
			second,
			[]query{sharedBy("trawl_redis_ping_seconds", "node")},
		},
		{graph, "Calls, p99", "99 of 100 calls end within this time, as API and workers see it.", second, []query{{
			"histogram_quantile(0.99, sum by (le, call) (rate(trawl_redis_seconds_bucket[$__rate_interval])))",
			"{{call}}",
		}}},
		{
			graph, "Calls",
			"Calls of API and workers, a second. A pipeline is one call.",
			each,
			[]query{rate("trawl_redis_seconds_count", "call")},
		},
		{
			graph, "Errors",
			"Calls that failed, a second, by kind. noscript is a script that is sent again.",
			each,
			[]query{rate("trawl_redis_errors_total", "kind")},
		},
		{graph, "Clients and replicas", "Connections of all clients, and replicas, by node.", count, []query{
			{"max by (node) (trawl_redis_connected_clients)", "{{node}} clients"},
			{"max by (node) (trawl_redis_replicas)", "{{node}} replicas"},
		}},
		{
			graph, "Persistence",
			"Whether the append-only file is on, and whether its last write and rewrite and the last snapshot all " +
				"went well.",
			yesNo,
			[]query{
				{"min by (node) (trawl_redis_persistence_ok)", "{{node}} written"},
				{"min by (node) (trawl_redis_aof_enabled)", "{{node}} AOF"},
			},
		},
		{graph, "Evicted keys", "Keys that Redis threw away, in five minutes. Any is lost data.", count, []query{
			{"max by (node) (increase(trawl_redis_evicted_keys_total[5m]))", "{{node}}"},
		}},
		{
			graph, "Up",
			"Whether Redis answers: as the API sees it that sees least.",
			yesNo,
			[]query{{"min by (node) (trawl_redis_up)", "{{node}}"}},
		},
	}}
}

func webhooks() row {
	return row{"Webhooks", []panel{
		{
			stack, "Deliveries",
			"Tries to deliver an event, a second, by outcome.",
			each,
			[]query{rate("trawl_webhook_deliveries_total", "outcome")},
		},
		{
			graph, "Jobs due",
			"Jobs with an event that is to be delivered now.",
			count,
			[]query{shared("trawl_webhook_jobs_due", "jobs")},
		},
	}}
}

func process() row {
	return row{"Processes", []panel{
		{
			graph, "CPU",
			"Cores in use, by process.",
			count, processes("rate(process_cpu_seconds_total" + ours + "[$__rate_interval])"),
		},
		{graph, "Memory", "Resident memory, by process.", size, processes("process_resident_memory_bytes" + ours)},
		{
			graph, "Goroutines",
			"Goroutines, by process. A line that only rises is a leak.",
			count, processes("go_goroutines" + ours),
		},
		{
			graph, "GC pause",
			"The longest pause of recent garbage collections, by process.",
			second, processes(`go_gc_duration_seconds{job=~".*trawl-(api|worker)", quantile="1"}`),
		},
		{
			graph, "Open files",
			"File descriptors in use of those that are allowed.",
			ratio, processes("process_open_fds" + ours + " / process_max_fds" + ours),
		},
		{
			graph, "Cost of these figures",
			"How long the last count of jobs and URLs took.",
			second,
			[]query{shared("trawl_stats_seconds", "time")},
		},
		{
			graph, "Jobs not counted",
			"Jobs beyond what one look counts, and tenants whose keys cannot be counted: with any, jobs and frontier " +
				"are lower bounds.",
			count,
			[]query{shared("trawl_stats_jobs_skipped", "jobs"), shared("trawl_stats_tenants_broken", "tenants")},
		},
		{table, "Versions", "What each process runs.", count, []query{
			{"count by (job, version, revision, go) (trawl_build_info)", ""},
		}},
	}}
}

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/redis/go-redis/v9"

	"example.com/trawl/pkg/queue"
)

const (
	// submissionsEach is how many jobs one round submits: fewer than the 10,000 of a tenant that the run gate lets run at
	// once, so that each of them is stored and is put into the queue as well. What is behind the gate is stored alone.
	submissionsEach = 9000
	// submissionsWarm are those before each round, of which nothing counts.
	submissionsWarm = 500
	// submissionsSeconds is more time than a round needs on any machine.
	submissionsSeconds = 120
	// fastAPIMeasured is what DESIGN §8 found of the service in memory, for where there is no FastAPI.
	fastAPIMeasured = 2700
)

// submissionConnections are how many callers submit at once.
var submissionConnections = []int{16, 256}

// measured is what callers found, and what it took of those who answered them.
type measured struct {
	called
	used  map[string]spent // by the name of the process
	redis gauge            // what Redis did meanwhile, where there is one
}

func (m measured) perSecond() float64 { return float64(m.Count) / m.Seconds }

// micros answers the CPU time of a kind of process for each request, in µs.
func (m measured) micros(process string) float64 { return m.used[process].CPU * 1e6 / float64(m.Count) }

// commands answers the commands of Redis for each request. Some that the API sends by itself are among them, and those
// with which the bench looks: fewer than one for hundreds of requests.
func (m measured) commands() float64 { return m.redis.commands / float64(m.Count) }

// measureCall measures one load. rdb is nil where no Redis takes part.
func (r *rig) measureCall(
	ctx context.Context, c calling, rdb redis.UniversalClient, of ...*child,
) (m measured, err error) {
	var before gauge
	if rdb != nil {
		if before, err = look(ctx, rdb); err != nil {
			return m, err
		}
	}
	mt, err := newMeter(of...)
	if err != nil {
		return m, err
	}
	if m.called, err = r.call(ctx, c); err != nil {
		return m, err
	}
	if _, m.used, err = mt.read(); err != nil || rdb == nil {
		return m, err
	}
	after, err := look(ctx, rdb)
	m.redis = after.less(before)
	return m, err
}

// replayedHead is in the head of an answer that tells of an earlier submission.
const replayedHead = "\r\nidempotent-replayed: true\r\n"

// submitting is a load of submissions as a client service sends them, each of another site and with an
// Idempotency-Key of its own that begins with the given word.
func submitting(url, key, word string, connections int, n int64) calling {
	const body = `{"seed_url":"https://docs.example.org/` + numberMark + `/","max_pages":50,"scope":"host",` +
		`"tags":["nightly","docs"]}`
	address, path, _ := strings.Cut(strings.TrimPrefix(url, "http://"), "/")
	return calling{
		Address: address, Connections: connections, Seconds: submissionsSeconds, Most: n, Status: 202,
		Request: fmt.Sprintf("POST /%s HTTP/1.1\r\nHost: %s\r\nUser-Agent: bench\r\nAuthorization: Bearer %s\r\n"+
			"Accept: application/json\r\nContent-Type: application/json\r\nContent-Length: %d\r\nIdempotency-Key: %s-%s\r\n\r\n%s",
			path, address, key, len(body), word, numberMark, body),
		Holds: []string{`"job_id":"`, `"state":"queued"`}, Lacks: replayedHead,
	}
}

// replaying is the same submissions once more.
func (c calling) replaying() calling {
	c.Head, c.Lacks = replayedHead, ""
	return c
}

// submissions are the rounds of all contenders with one number of connections.
type submissions struct {
	connections       int
	trawl, replays    []measured
	documented, plain []measured // FastAPI: with a model of what it answers, and without one
}

// ratio answers submissions/s of Trawl to those of another.
func (s *submissions) ratio(other []measured) float64 {
	return overOf(s.trawl, measured.perSecond).Median / overOf(other, measured.perSecond).Median
}

// measureSubmissions is measured by the part "submissions".
func measureSubmissions(ctx context.Context, r *rig) (findings, error) {
	return r.submissions(ctx, submissionsEach)
}

// submissions measures rounds of n submissions.
func (r *rig) submissions(ctx context.Context, n int64) (findings, error) {
	f, err := r.newFleet(ctx, fleetOptions{apis: 1})
	if err != nil {
		return findings{}, err
	}
	defer f.stop()
	python, without := findFastAPI(ctx)
	if without != nil {
		progress("  %v", without)
	}
	var all []*submissions
	for _, connections := range submissionConnections {
		s := &submissions{connections: connections}
		all = append(all, s)
		contenders := []func() error{func() error { return f.submissions(ctx, s, n) }}
		if without == nil {
			contenders = append(contenders,
				func() error { return python.submissions(ctx, r, s.connections, n, "/v1/jobs", &s.documented) },
				func() error { return python.submissions(ctx, r, s.connections, n, "/plain/v1/jobs", &s.plain) })
		}
		for round := range r.o.Rounds {
			progress("  %d connections, round %d", connections, round+1)
			for i := range contenders {
				if err := contenders[(i+round)%len(contenders)](); err != nil { // each begins a round in turn
					return findings{}, err
				}
			}
		}
	}
	return submissionFindings(all, n, python, without), nil
}

// submissions measures one round of Trawl: n submissions, and the same n once more.
func (f *fleet) submissions(ctx context.Context, s *submissions, n int64) error {
	if _, err := f.r.call(ctx, submitting(f.base[0]+"/v1/jobs", f.key, "warm", s.connections, submissionsWarm)); err != nil {
		return err
	}
	if err := f.fresh(ctx); err != nil {
		return err
	}
	load := submitting(f.base[0]+"/v1/jobs", f.key, "order", s.connections, n)
	m, err := f.r.measureCall(ctx, load, f.rdb, f.redis, f.apis[0])
	if err != nil {
		return err
	}
	if err := f.verifyStored(ctx, n, m.Count); err != nil {
		return err
	}
	s.trawl = append(s.trawl, m)
	if m, err = f.r.measureCall(ctx, load.replaying(), f.rdb, f.redis, f.apis[0]); err != nil {
		return fmt.Errorf("replays: %w", err)
	}
	s.replays = append(s.replays, m)
	return errors.Join(f.verifyStored(ctx, n, m.Count), f.fresh(ctx))
}

// verifyStored holds that all n submissions were answered, and that as many jobs are stored and are in the queue.
func (f *fleet) verifyStored(ctx context.Context, n, answered int64) error {
	stored, err := f.rdb.ZCard(ctx, "{t:"+tenant+"}:jobs").Result()
	if err != nil {
		return fmt.Errorf("count the jobs: %w", err)
	}
	queued, err := f.rdb.LLen(ctx, "asynq:{"+queue.Name+"}:pending").Result()
	if err != nil {
		return fmt.Errorf("count the queue: %w", err)
	}
	if answered != n || stored != n || queued != n {
		return fmt.Errorf("%d submissions: %d were answered, %d jobs are stored and %d are queued", n, answered, stored, queued)
	}
	return nil
}

// fastAPI is a Python that runs the service of fastapi_service.py.
type fastAPI struct{ python, versions string }

// findFastAPI looks for a Python that has FastAPI and uvicorn: of those on PATH, and of the system.
func findFastAPI(ctx context.Context) (fastAPI, error) {
	const versions = `import importlib.util, platform, fastapi, pydantic, uvicorn
parts = [n for n in ("uvloop", "httptools") if importlib.util.find_spec(n)]
print(f"FastAPI {fastapi.__version__}, pydantic {pydantic.VERSION}, uvicorn {uvicorn.__version__}",
      "with " + " and ".join(parts) if parts else "without uvloop", "on Python", platform.python_version())`
	for _, python := range []string{"python3", "/usr/bin/python3"} {
		if found, err := output(ctx, "", python, "-c", versions); err == nil {
			return fastAPI{python, found}, nil
		}
	}
	return fastAPI{}, errors.New("no Python has FastAPI and uvicorn (Debian: apt-get install python3-fastapi uvicorn)")
}

// start starts the service, which is ready when it is answered.
func (p fastAPI) start(ctx context.Context, r *rig, key string) (c *child, base string, err error) {
	address, err := freeAddress(ctx)
	if err != nil {
		return nil, "", err
	}
	host, port, _ := strings.Cut(address, ":")
	env := append(os.Environ(), "BENCH_KEY="+key, "PYTHONDONTWRITEBYTECODE=1")
	if c, err = r.startProgram(ctx, "fastapi", env, p.python, "-m", "uvicorn",
		"--host", host, "--port", port, "--app-dir", filepath.Join(r.root, "deployments", "bench"), "fastapi_service:app"); err != nil {
		return nil, "", err
	}
	base = "http://" + address
	for range 4 { // what it imports takes Python seconds where the machine is busy
		if err = await(ctx, "FastAPI", func(ctx context.Context) error { return healthy(ctx, base+"/readyz") }); err == nil {
			return c, base, nil
		}
	}
	c.stop()
	return nil, "", err
}

// submissions measures one round. The service is a new one for each, since what it keeps slows Python down.
func (p fastAPI) submissions(
	ctx context.Context, r *rig, connections int, n int64, path string, rounds *[]measured,
) error {
	const key = "a-key-of-the-bench"
	c, base, err := p.start(ctx, r, key)
	if err != nil {
		return fmt.Errorf("FastAPI: %w", err)
	}
	defer c.stop()
	if _, err := r.call(ctx, submitting(base+path, key, "warm", connections, submissionsWarm)); err != nil {
		return err
	}
	m, err := r.measureCall(ctx, submitting(base+path, key, "order", connections, n), nil, c)
	if err != nil {
		return err
	}
	kept, err := ask(ctx, base+"/readyz")
	if err != nil {
		return err
	}
	if want := fmt.Sprintf(`{"queued":%d,"jobs":%[1]d}`, n+submissionsWarm); kept != want || m.Count != n {
		return fmt.Errorf("FastAPI: %d submissions: %d were answered and %s is kept, want %s", n, m.Count, kept, want)
	}
	*rounds = append(*rounds, m)
	return nil
}

// submissionFindings are the table and the bar. without says why there is no FastAPI.
func submissionFindings(all []*submissions, n int64, python fastAPI, without error) findings {
	t := table{Title: "Submissions, answered 202", Columns: []column{
		{Key: "per_second", Title: "submissions/s", Range: true},
		{Key: "p50_us", Title: "p50 µs"},
		{Key: "p99_us", Title: "p99 µs"},
		{Key: "max_us", Title: "max µs"},
		{Key: "service_cpu_us", Title: "CPU µs of the service"},
		{Key: "redis_cpu_us", Title: "of Redis"},
		{Key: "callers_cpu_us", Title: "of the callers"},
		{Key: "redis_commands", Title: "Redis commands", Digits: 1},
		{Key: "redis_bytes", Title: "bytes in Redis"},
	}}
	for _, s := range all {
		name := func(who string) string { return fmt.Sprintf("%s, %d connections", who, s.connections) }
		t.Rows = append(t.Rows, submissionRow(name("Trawl"), s.trawl, "api", true),
			submissionRow(name("Trawl, replays"), s.replays, "api", false))
		if without == nil {
			t.Rows = append(t.Rows, submissionRow(name("FastAPI in memory"), s.documented, "fastapi", false),
				submissionRow(name("FastAPI without a response model"), s.plain, "fastapi", false))
		}
	}
	t.Notes = []string{fmt.Sprintf("Each round is %s submissions to one API and one Redis, without a worker: each job is "+
		"authenticated, validated, stored under an Idempotency-Key of its own and put into the queue, as a count of both in "+
		"Redis shows; replays are the same submissions once more. They are fewer than the 10,000 jobs that the run gate lets "+
		"run. CPU, commands and bytes are those of one submission; the callers share the processors with the services.",
		number(float64(n), 0))}
	if without != nil {
		t.Notes = append(t.Notes, "FastAPI was not measured: "+without.Error()+".")
		return findings{Tables: []table{t}, Bars: []bar{{
			Figure: "submissions/s (no FastAPI here: 2 × the 2,700/s of DESIGN), the worse of 16 and 256 connections",
			Bound:  2 * fastAPIMeasured, Unit: "/s",
			Value: overOf(all, func(s *submissions) float64 { return overOf(s.trawl, measured.perSecond).Median }).Min,
		}}}
	}
	worst := overOf(all, func(s *submissions) float64 { return s.ratio(s.documented) }).Min
	plain := overOf(all, func(s *submissions) float64 { return s.ratio(s.plain) }).Min
	t.Notes = append(t.Notes, fmt.Sprintf("FastAPI in memory is deployments/bench/fastapi_service.py: the same requests to "+
		"one process that keeps jobs in dicts and an asyncio.Queue, and nothing when it ends; with a model of what comes in and "+
		"one of what goes out, as its documentation has it. Both services log each request into a file, as they do unless told otherwise. To its submissions/s without the second one, those of Trawl are "+
		"%s, the worse of both. %s.", number(plain, 2), python.versions))
	return findings{Tables: []table{t}, Bars: []bar{{
		Figure: "submissions/s to those of FastAPI in memory, the worse of 16 and 256 connections", Bound: 2, Digits: 2,
		Value: worst, Unit: "×",
	}}}
}

// submissionRow is one contender. Only new jobs take memory of Redis.
func submissionRow(name string, rounds []measured, service string, stored bool) row {
	per := func(of func(measured) float64) cell { return overOf(rounds, of) }
	cells := map[string]cell{
		"per_second":     per(measured.perSecond),
		"p50_us":         per(func(m measured) float64 { return m.P50 }),
		"p99_us":         per(func(m measured) float64 { return m.P99 }),
		"max_us":         per(func(m measured) float64 { return m.Max }),
		"service_cpu_us": per(func(m measured) float64 { return m.micros(service) }),
		"callers_cpu_us": per(func(m measured) float64 { return m.CPU / float64(m.Count) }),
	}
	if service == "api" {
		cells["redis_cpu_us"] = per(func(m measured) float64 { return m.micros("redis") })
		cells["redis_commands"] = per(measured.commands)
	}
	if stored {
		cells["redis_bytes"] = per(func(m measured) float64 { return m.redis.memory / float64(m.Count) })
	}
	return row{Name: name, Cells: cells}
}

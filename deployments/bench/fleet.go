package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"example.com/trawl/pkg/client"
	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/redisconn"
	"example.com/trawl/pkg/store"
)

// module is that of Trawl.
const module = "example.com/trawl"

// tenant is the one that all jobs are of.
const tenant = "bench"

// rig is what all parts share: options, a directory, and the programs, built once.
type rig struct {
	o           options
	dir         string // for logs and the like, removed at the end
	root        string // of the module
	api, worker string // programs
	started     int    // programs so far
}

// newRig builds the programs from the module that the working directory is in.
func newRig(ctx context.Context, o options) (*rig, error) {
	if _, err := exec.LookPath("redis-server"); err != nil {
		return nil, fmt.Errorf("bench needs redis-server on PATH (Debian: apt-get install redis-server): %w", err)
	}
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		return nil, fmt.Errorf("bench reads what processes use from /proc, which is there on Linux: %w", err)
	}
	dir, err := os.MkdirTemp("", "trawl-bench-")
	if err != nil {
		return nil, fmt.Errorf("make a directory: %w", err)
	}
	r := &rig{o: o, dir: dir, api: filepath.Join(dir, "api"), worker: filepath.Join(dir, "worker")}
	if err := r.build(ctx); err != nil {
		r.close()
		return nil, err
	}
	return r, nil
}

func (r *rig) build(ctx context.Context) (err error) {
	progress("building the API and the worker")
	if r.root, err = output(ctx, "", "go", "list", "-m", "-f", "{{.Dir}}", module); err != nil {
		return err
	}
	for path, pkg := range map[string]string{r.api: "./api", r.worker: "./worker"} {
		args := []string{"build", "-trimpath", "-o", path}
		if r.o.Profile != "" {
			if err := os.MkdirAll(r.o.Profile, 0o750); err != nil {
				return fmt.Errorf("make the directory of the profiles: %w", err)
			}
			overlay, err := profiled(r.dir, filepath.Join(r.root, pkg))
			if err != nil {
				return err
			}
			args = append(args, "-overlay", overlay)
		}
		if _, err := output(ctx, r.root, "go", append(args, pkg)...); err != nil {
			return err
		}
	}
	return nil
}

func (r *rig) close() { _ = os.RemoveAll(r.dir) } // a rest in the temporary directory harms nobody

func (r *rig) begin(p part) { progress("%s: %s", p.name, p.does) }

// output answers what a command writes, or an error with what it writes about it.
func output(ctx context.Context, dir, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	if name == "go" {
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0") // as the images are built
	}
	dieWithUs(cmd)
	cmd.WaitDelay = 2 * time.Second // what it started may hold the pipe longer than it lives
	var wrong strings.Builder
	cmd.Stderr = &wrong
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, wrong.String())
	}
	return strings.TrimSpace(string(out)), nil
}

// commit names what is measured.
func commit(ctx context.Context, root string) string {
	head, err := output(ctx, root, "git", "rev-parse", "--short", "HEAD")
	if err != nil {
		return "unknown"
	}
	if changes, err := output(ctx, root, "git", "status", "--porcelain"); err != nil || changes != "" {
		head += " and changes"
	}
	return head
}

// fleet is a Redis with APIs and workers, each a process of its own, as they are shipped.
type fleet struct {
	r       *rig
	redis   *child
	url     string // of Redis
	rdb     redis.UniversalClient
	st      *store.Store
	apis    []*child
	workers []*child
	base    []string // URL of each API
	metrics []string // URL of the metrics of each worker
	key     string   // of the tenant
	client  *client.Client
}

// fleetOptions say what a fleet is made of. The zero value is a Redis alone, without persistence.
type fleetOptions struct {
	apis, workers int
	redis         []string // arguments of redis-server
	env           []string // more settings of the API and of the workers, as TRAWL_X=y
}

// newFleet starts a fleet, which is ready when it is answered.
func (r *rig) newFleet(ctx context.Context, o fleetOptions) (*fleet, error) {
	f := &fleet{r: r, key: rand.Text()}
	if err := f.start(ctx, o); err != nil {
		f.stop()
		return nil, err
	}
	return f, nil
}

func (f *fleet) start(ctx context.Context, o fleetOptions) error {
	address, err := freeAddress(ctx)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp(f.r.dir, "redis-")
	if err != nil {
		return fmt.Errorf("make a directory for redis-server: %w", err)
	}
	host, port, _ := strings.Cut(address, ":")
	if f.redis, err = f.r.startProgram(ctx, "redis", os.Environ(), "redis-server", append([]string{
		"--port", port, "--bind", host, "--dir", dir, "--save", "", "--appendonly", "no", "--daemonize", "no",
	}, o.redis...)...); err != nil {
		return err
	}
	f.url = "redis://" + address + "/0"
	if f.rdb, err = redisconn.Open(f.url, redisconn.Options{}); err != nil {
		return err
	}
	f.st = store.New(f.rdb, store.Options{})
	if err := await(ctx, "redis-server", f.st.Ready); err != nil {
		return err
	}
	for range o.apis {
		if err := f.addAPI(ctx, o.env...); err != nil {
			return err
		}
	}
	for range o.workers {
		if err := f.addWorker(ctx, o.env...); err != nil {
			return err
		}
	}
	return nil
}

// settings are those of every process: hosts of the loopback may be crawled, as fast as they answer.
func (f *fleet) settings(more ...string) []string {
	var env []string
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "TRAWL_") && !strings.HasPrefix(kv, "OTEL_") {
			env = append(env, kv)
		}
	}
	env = append(env, "TRAWL_REDIS_URL="+f.url, "TRAWL_ALLOWED_SOURCES=*", "TRAWL_PRIVATE_HOSTS=127.0.0.0/8",
		"TRAWL_HOST_DELAY=0s", "TRAWL_HOST_CONCURRENCY=256", "TRAWL_CONCURRENCY="+strconv.Itoa(f.r.o.InFlight))
	return append(env, more...)
}

func (f *fleet) addAPI(ctx context.Context, more ...string) error {
	address, err := freeAddress(ctx)
	if err != nil {
		return err
	}
	profile := f.r.profile("api", len(f.apis))
	env := f.settings(append([]string{
		"TRAWL_LISTEN=" + address, "TRAWL_API_KEYS=" + tenant + ":" + f.key, "TRAWL_MAX_RUNNING=10000", "TRAWL_MAX_QUEUED=1000000",
		profileSetting + "=" + profile,
	}, more...)...)
	api, err := f.r.startProgram(ctx, "api", env, f.r.api)
	if err != nil {
		return err
	}
	api.profile = profile
	f.apis, f.base = append(f.apis, api), append(f.base, "http://"+address)
	if f.client == nil {
		if f.client, err = client.New(f.base[0], f.key); err != nil {
			return err
		}
	}
	return await(ctx, "the API", func(ctx context.Context) error { return healthy(ctx, "http://"+address+"/readyz") })
}

func (f *fleet) addWorker(ctx context.Context, more ...string) error {
	address, err := freeAddress(ctx)
	if err != nil {
		return err
	}
	profile := f.r.profile("worker", len(f.workers))
	env := f.settings(append([]string{
		"TRAWL_WORKER_LISTEN=" + address, profileSetting + "=" + profile,
	}, more...)...)
	w, err := f.r.startProgram(ctx, "worker", env, f.r.worker)
	if err != nil {
		return err
	}
	w.profile = profile
	f.workers, f.metrics = append(f.workers, w), append(f.metrics, "http://"+address+"/metrics")
	return await(ctx, "the worker", func(ctx context.Context) error { return healthy(ctx, "http://"+address+"/readyz") })
}

// all are the processes of the fleet.
func (f *fleet) all() []*child { return slices.Concat([]*child{f.redis}, f.apis, f.workers) }

// stop ends all that was started.
func (f *fleet) stop() {
	for _, c := range slices.Concat(f.apis, f.workers) {
		c.endProfile()
		c.stop()
	}
	if f.rdb != nil {
		_ = f.rdb.Close()
	}
	if f.redis != nil {
		f.redis.stop()
	}
}

// fresh empties Redis. The workers and the API go on.
func (f *fleet) fresh(ctx context.Context) error {
	if err := f.rdb.FlushAll(ctx).Err(); err != nil {
		return fmt.Errorf("flush: %w", err)
	}
	return nil
}

// submit submits a job by the API and answers who it is.
func (f *fleet) submit(ctx context.Context, spec client.Spec) (crawl.JobRef, error) {
	s, err := f.client.Submit(ctx, spec)
	if err != nil {
		return crawl.JobRef{}, err
	}
	return crawl.JobRef{Tenant: tenant, ID: s.ID}, nil
}

// follow looks at jobs, in Redis and not by the API, until the last ends, and calls each with how many of their pages
// are processed. Each look is one round trip of the bench's own for each job.
func (f *fleet) follow(
	ctx context.Context, every time.Duration, each func(processed int64), jobs ...crawl.JobRef,
) ([]crawl.Job, error) {
	ends := make([]crawl.Job, len(jobs))
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		processed, running := int64(0), false
		for i, ref := range jobs {
			if !ends[i].State.Terminal() {
				var err error
				if ends[i], err = f.st.Job(ctx, ref); err != nil {
					return nil, err
				}
			}
			processed += ends[i].Processed
			running = running || !ends[i].State.Terminal()
		}
		if each != nil {
			each(processed)
		}
		if !running {
			return ends, nil
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-tick.C:
		}
	}
}

// await asks until there is no error, for half a minute: starting takes seconds on a machine that is busy.
func await(ctx context.Context, what string, ask func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for {
		err := ask(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s did not answer: %w", what, err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func healthy(ctx context.Context, url string) error {
	_, err := ask(ctx, url)
	return err
}

// profileSetting tells a program that was built for it where to write its CPU profile.
const profileSetting = "BENCH_PROFILE"

// profile answers the file of a profile, or nothing where none is asked for.
func (r *rig) profile(name string, n int) string {
	if r.o.Profile == "" {
		return ""
	}
	dir, err := filepath.Abs(r.o.Profile)
	if err != nil {
		dir = r.o.Profile
	}
	return filepath.Join(dir, fmt.Sprintf("%s-%d-%d.pprof", name, r.started, n))
}

// profiler is put into the programs that are profiled. They have no setting for it: it is nothing that a service needs
// whose traces and metrics tell where time goes. The profile is whole, and has its name, once there is a file that
// asks for it.
const profiler = `package main

import (
	"os"
	"runtime/pprof"
	"time"
)

func init() {
	name := os.Getenv("` + profileSetting + `")
	f, err := os.Create(name + ".part")
	if err != nil {
		return
	}
	_ = pprof.StartCPUProfile(f)
	go func() {
		for range time.Tick(50 * time.Millisecond) {
			if os.Remove(name+".end") == nil {
				pprof.StopCPUProfile()
				_ = f.Close()
				_ = os.Rename(name+".part", name)
				return
			}
		}
	}()
}
`

// endProfile has a profiled process write its profile, and waits for it: for a while only, since the profile is not
// what was measured.
func (c *child) endProfile() {
	if c.profile == "" || os.WriteFile(c.profile+".end", nil, 0o600) != nil {
		return
	}
	for range 200 {
		if _, err := os.Stat(c.profile); err == nil {
			return
		}
		<-time.After(10 * time.Millisecond)
	}
	progress("%s left no profile", c.name)
}

// profiled answers the overlay of a build that puts the profiler into the program of a directory.
func profiled(dir, program string) (string, error) {
	source := filepath.Join(dir, "profiler.go")
	overlay := filepath.Join(dir, filepath.Base(program)+"-overlay.json")
	spec, err := json.Marshal(map[string]any{"Replace": map[string]string{filepath.Join(program, "profiler_bench.go"): source}})
	return overlay, errors.Join(err, os.WriteFile(source, []byte(profiler), 0o600), os.WriteFile(overlay, spec, 0o600))
}

// ask answers the body of a URL that is there.
func ask(ctx context.Context, url string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return "", fmt.Errorf("ask: %w", err)
	}
	return answer(req)
}

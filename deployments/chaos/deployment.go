package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// grace is the TRAWL_SHUTDOWN_GRACE of every process, and closing what a process may take on top of it: twice, for
// what it must still tell a Redis that may be away.
const (
	grace   = 2 * time.Second
	closing = 5 * time.Second
)

// tenants are those of the load. The first has less room than the others.
var tenants = []string{"amber", "basalt", "cobalt", "dune"}

// deployment is a Trawl with a proxy on each of its links.
type deployment struct {
	redis   *redisServer
	workers []*process
	apis    []*process
	links   []*link
	keys    map[string]string // of the tenants
	sites   []string          // host:port of each way to the site
	urls    []string          // of each API, by the proxy
	next    atomic.Int64
	health  *http.Client
}

// size is how many processes there are.
type size struct{ workers, apis, sites int }

// deploy starts everything. What was started is in the answer also when there is an error.
func deploy(ctx context.Context, dir string, b programs, n size, acl bool, site string) (*deployment, error) {
	d := &deployment{keys: map[string]string{}, health: &http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}}}
	var keys []string
	for _, t := range tenants {
		d.keys[t] = secret()
		keys = append(keys, t+":"+d.keys[t])
	}
	p := &ports{next: firstPort + int(time.Now().UnixNano()%(lastPort-firstPort))}
	aclFile := ""
	if acl {
		aclFile = filepath.Join(b.root, "deployments", "redis", "users.acl")
	}
	var err error
	if d.redis, err = newRedis(dir, aclFile, p); err != nil {
		return d, err
	}
	if err := d.redis.start(ctx); err != nil {
		return d, err
	}
	for i := range n.sites {
		l, err := d.connect(fmt.Sprintf(siteLink+"site-%d", i+1), site, p)
		if err != nil {
			return d, err
		}
		d.sites = append(d.sites, l.address())
	}
	for i := range n.apis {
		if err := d.addAPI(dir, b.api, "api-"+strconv.Itoa(i+1), strings.Join(keys, ","), p); err != nil {
			return d, err
		}
	}
	for i := range n.workers {
		if err := d.addWorker(dir, b.worker, "worker-"+strconv.Itoa(i+1), p); err != nil {
			return d, err
		}
	}
	for _, proc := range d.trawl() {
		if err := proc.start(ctx); err != nil {
			return d, err
		}
	}
	return d, nil
}

func (d *deployment) connect(name, to string, p *ports) (*link, error) {
	l, err := openLink(name, to, p)
	if err == nil {
		d.links = append(d.links, l)
	}
	return l, err
}

func (d *deployment) addAPI(dir, path, name, keys string, p *ports) error {
	toRedis, err := d.connect(name+" to redis", d.redis.address, p)
	if err != nil {
		return err
	}
	address, err := p.free()
	if err != nil {
		return err
	}
	d.apis = append(d.apis, d.process(dir, path, name, address, "TRAWL_LISTEN="+address, "TRAWL_API_KEYS="+keys,
		"TRAWL_REDIS_URL="+d.redis.url(toRedis.address(), userAPI), "TRAWL_MAX_RUNNING=6"))
	callers, err := d.connect(callersLink+name, address, p)
	if err != nil {
		return err
	}
	d.urls = append(d.urls, "http://"+callers.address())
	return nil
}

func (d *deployment) addWorker(dir, path, name string, p *ports) error {
	toRedis, err := d.connect(name+" to redis", d.redis.address, p)
	if err != nil {
		return err
	}
	address, err := p.free()
	if err != nil {
		return err
	}
	d.workers = append(d.workers, d.process(dir, path, name, address, "TRAWL_WORKER_LISTEN="+address,
		"TRAWL_REDIS_URL="+d.redis.url(toRedis.address(), userWorker), "TRAWL_CONCURRENCY=24"))
	return nil
}

func (d *deployment) process(dir, path, name, address string, settings ...string) *process {
	return &process{
		name: name, path: path, log: filepath.Join(dir, name+".log"),
		env: environment(append(settings,
			"TRAWL_ALLOWED_SOURCES=*", "TRAWL_PRIVATE_HOSTS=127.0.0.0/8", "TRAWL_HOST_DELAY=0s", "TRAWL_HOST_CONCURRENCY=64",
			"TRAWL_SHUTDOWN_GRACE="+grace.String())...),
		healthy: func(ctx context.Context) error { return d.alive(ctx, "http://"+address+"/healthz") },
	}
}

// alive asks a process whether it lives.
func (d *deployment) alive(ctx context.Context, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return err
	}
	res, err := d.health.Do(req)
	if err != nil {
		return err
	}
	_ = res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("health: %s", res.Status)
	}
	return nil
}

// trawl answers the processes of Trawl.
func (d *deployment) trawl() []*process {
	return append(append([]*process(nil), d.apis...), d.workers...)
}

// named answers the process of a name, which there is.
func (d *deployment) named(name string) *process {
	for _, p := range d.trawl() {
		if p.name == name {
			return p
		}
	}
	return d.redis.process
}

// link answers the link of a name, which there is.
func (d *deployment) link(name string) *link {
	for _, l := range d.links {
		if l.name == name {
			return l
		}
	}
	return nil
}

// api answers the URL of each API in turn.
func (d *deployment) api() string {
	return d.urls[int(d.next.Add(1))%len(d.urls)]
}

// stage is what a plan for this deployment is made for.
func (d *deployment) stage(span time.Duration, of []kind) stage {
	s := stage{span: span, kinds: of}
	for _, p := range d.workers {
		s.workers = append(s.workers, p.name)
	}
	for _, p := range d.apis {
		s.apis = append(s.apis, p.name)
	}
	for _, l := range d.links {
		s.links = append(s.links, l.name)
	}
	return s
}

// mend has everything run and every link well, when the faults are over.
func (d *deployment) mend(ctx context.Context) error {
	errs := []error{d.redis.revive(ctx), d.redis.limit(ctx, 0)}
	for _, p := range d.trawl() {
		p.turn.Lock()
		errs = append(errs, p.revive(ctx))
		p.turn.Unlock()
	}
	return errors.Join(errs...)
}

// stop ends everything that was started.
func (d *deployment) stop() error {
	var errs []error
	for _, p := range d.trawl() {
		errs = append(errs, p.kill())
	}
	for _, l := range d.links {
		l.close()
	}
	if d.redis != nil {
		errs = append(errs, d.redis.kill(), d.redis.look.Close())
	}
	return errors.Join(errs...)
}

// host serves the site, and answers where.
func host(ctx context.Context, handler http.Handler) (*http.Server, string, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, "", fmt.Errorf("listen for the site: %w", err)
	}
	srv := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = srv.Serve(l) }() // it ends when the server is closed
	return srv, l.Addr().String(), nil
}

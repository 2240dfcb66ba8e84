package httpapi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humagin"
	"github.com/gin-gonic/gin"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/sync/semaphore"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/obs"
	"example.com/trawl/pkg/store"
)

// Limits of one connection. The handlers are quick; these are against clients
// that are not.
const (
	readHeaderTimeout = 5 * time.Second
	// readTimeout is for header and body together: 2 MiB in 30 s is 70 kB/s.
	readTimeout = 30 * time.Second
	// writeTimeout is for each piece of an answer, see Server.extend. Over the
	// whole answer it would cut long downloads.
	writeTimeout = 30 * time.Second
	// idleTimeout is longer than the 60 to 90 s of the usual proxies, so that the
	// side that reuses a connection is the one that closes it.
	idleTimeout = 120 * time.Second
	// maxHeaderBytes leaves room for a proxy's additions; the standard library's
	// default is a megabyte a connection.
	maxHeaderBytes = 64 << 10

	// defaultStopGrace is longer than the longest wait of a handler, cancelWait and
	// storeWait after it.
	defaultStopGrace = 20 * time.Second
)

// Jobs is what the API needs of the store. *store.Store is one; its contract is
// there. Every error is a *crawl.Fault or a defect.
type Jobs interface {
	Create(ctx context.Context, n store.NewJob) (store.Created, error)
	RingFailed(ctx context.Context, job crawl.JobRef, message string) error
	Job(ctx context.Context, job crawl.JobRef) (crawl.Job, error)
	List(ctx context.Context, q store.ListQuery) (store.JobPage, error)
	Records(ctx context.Context, job crawl.JobRef, after int64, limit int) (store.RecordPage, error)
	Failures(ctx context.Context, job crawl.JobRef, after int64, limit int) (store.FailurePage, error)
	URLs(ctx context.Context, job crawl.JobRef, q store.URLQuery) (store.URLPage, error)
	WebhookEvents(ctx context.Context, job crawl.JobRef) ([]store.WebhookEvent, error)
	Cancel(ctx context.Context, job crawl.JobRef) (store.CancelResult, error)
	Pause(ctx context.Context, job crawl.JobRef) (crawl.State, []crawl.Ring, error)
	Resume(ctx context.Context, job crawl.JobRef) (crawl.State, []crawl.Ring, error)
	Plan(ctx context.Context, job crawl.JobRef) (crawl.Plan, error)
	Delete(ctx context.Context, job crawl.JobRef) error
	Ready(ctx context.Context) error
}

// Tenants is what the API needs of the store about tenants and their keys. *store.Store is
// one; its contract is there.
type Tenants interface {
	Authenticate(ctx context.Context, digest [32]byte) (crawl.APIKey, crawl.Tenant, error)
	Tenant(ctx context.Context, name string) (crawl.Tenant, error)
	Tenants(ctx context.Context, after string, limit int) (store.TenantPage, error)
	CreateTenant(ctx context.Context, t crawl.Tenant) (crawl.Tenant, error)
	ChangeTenant(ctx context.Context, t crawl.Tenant) (crawl.Tenant, error)
	SetQuota(ctx context.Context, tenant string, q crawl.Quota) ([]crawl.Ring, error)
	Keys(ctx context.Context, tenant string) ([]crawl.APIKey, error)
	AddKey(ctx context.Context, k store.NewKey) (crawl.APIKey, error)
	RotateKey(ctx context.Context, tenant, id string, overlap time.Duration, next store.NewKey) (crawl.APIKey, error)
	RevokeKey(ctx context.Context, tenant, id string) error
}

// Collections is what the API needs of the store about what outlives the jobs. *store.Store is
// one; its contract is there.
type Collections interface {
	Collections(ctx context.Context, tenant, after string, limit int) (store.CollectionPage, error)
	Collection(ctx context.Context, tenant, name string) (store.CollectionInfo, error)
	Items(ctx context.Context, q store.ItemQuery) (store.ItemPage, error)
	Analytics(ctx context.Context, tenant, name string, topN int) (store.Analytics, error)
	DeleteItem(ctx context.Context, tenant, name, key string) error
	DeleteCollection(ctx context.Context, tenant, name string) error
}

// Doorbell enqueues slices: *queue.Doorbell is one.
type Doorbell interface {
	Ring(ctx context.Context, rings ...crawl.Ring) error
}

// Options are what a server is made of.
type Options struct {
	Listen   string   // host:port to listen on; port 0 takes a free one
	Jobs     Jobs     // required
	Doorbell Doorbell // required
	// Collections are required, too.
	Collections Collections

	// Keys holds the API keys of each tenant. Only digests of them are kept.
	Keys    map[string][]string
	Sources crawl.Sources // what may be submitted
	Limits  crawl.Limits  // what a submission may ask for
	// Quota is what every tenant is granted at most; MaxRunning of it is at least 1.
	Quota crawl.Quota
	// Tenants knows what is particular to a tenant, and the keys that the admin API made.
	// Nil: there are only Keys, and no admin API.
	Tenants Tenants
	// AdminKey opens /v1/admin; empty: there is no admin API.
	AdminKey string
	// Queue is the client of the Redis that has the queue. With it, and an AdminKey, the queue is
	// shown at /monitor; nil: there is no monitor. It is shared and not closed.
	Queue redis.UniversalClient
	// MonitorWrite lets the monitor change the queue; without it it only shows.
	MonitorWrite bool
	// GatewaySecret is what a gateway sends in X-Gateway-Secret so that its X-Tenant-ID is
	// believed; empty: no gateway is.
	GatewaySecret string

	// Checks are conditions of /readyz beside what Jobs say. An error that is a fault is told.
	Checks []obs.Check
	// Level is that of Logger. With it and Levels the admin API sets the level of all processes,
	// and while the server runs this one follows.
	Level  *obs.Level
	Levels Levels
	// Notify hears of what becomes of the process in Run; nil: nobody does.
	Notify *obs.Notifier

	// StopGrace bounds Stop within Run; 0 means 20 s.
	StopGrace time.Duration
	Logger    *slog.Logger         // required
	Registry  *prometheus.Registry // required: what /metrics shows, and where the server's own go
	// Traces makes the spans of the requests; nil: none are made.
	Traces trace.TracerProvider
}

// Server is the HTTP process as a value: [New], then [Server.Start] and
// [Server.Stop], or [Server.Run] for both.
type Server struct {
	o    Options
	jobs promptJobs // o.Jobs, for all that has no deadline of its own
	// collections are o.Collections.
	collections promptCollections
	bodies      *semaphore.Weighted
	shares      *shares // of bodies
	// extracts are the pages that are worked on in this process; extractShares are of them.
	extracts      *semaphore.Weighted
	extractShares *shares
	streams       *streams
	accounts      *accounts
	log           *slog.Logger
	keys          keyring
	admin         secret // opens /v1/admin
	gateway       secret // lets X-Tenant-ID be believed
	metrics       *metrics
	tracer        trace.Tracer // nil: off
	monitor       *monitor     // nil: there is none
	engine        *gin.Engine
	api           huma.API
	http          *http.Server

	writeTimeout time.Duration // the constant; tests lower it

	stopping atomic.Bool
	failed   chan error // at most one: why serving ended by itself

	mu       sync.Mutex
	listener net.Listener
	stopped  bool
	unfollow func()         // ends what keeps the log level
	greeted  sync.WaitGroup // the look at the store that begins a start
}

func init() {
	// gin's other modes print every route to the standard output, between the log lines.
	gin.SetMode(gin.ReleaseMode)
}

// New wires a server. It binds nothing and starts nothing; an error says which
// option is missing or wrong.
func New(o Options) (*Server, error) {
	var faults []error
	for name, missing := range map[string]bool{
		"Jobs": o.Jobs == nil, "Doorbell": o.Doorbell == nil, "Logger": o.Logger == nil, "Registry": o.Registry == nil,
		"Quota.MaxRunning": o.Quota.MaxRunning < 1, "Collections": o.Collections == nil,
	} {
		if missing {
			faults = append(faults, fmt.Errorf("httpapi: option %s is missing", name))
		}
	}
	keys, err := newKeyring(o.Keys)
	if err = errors.Join(append(faults, err, distinct(keys, o.AdminKey, o.GatewaySecret))...); err != nil {
		return nil, err
	}
	admin, gateway := newSecret(o.AdminKey), newSecret(o.GatewaySecret)
	var watch *monitor
	if o.Queue != nil && o.AdminKey != "" {
		if watch, err = newMonitor(o.Queue, o.MonitorWrite, o.AdminKey); err != nil {
			return nil, err
		}
	}
	o.Keys, o.AdminKey, o.GatewaySecret = nil, "", "" // only digests are kept
	if o.StopGrace <= 0 {
		o.StopGrace = defaultStopGrace
	}
	m, err := newMetrics(o.Registry)
	if err != nil {
		return nil, fmt.Errorf("httpapi: metrics: %w", err)
	}
	s := &Server{
		o: o, jobs: promptJobs{o.Jobs}, collections: promptCollections{o.Collections},
		bodies: semaphore.NewWeighted(bodyRoom), shares: newShares(tenantRoom), log: o.Logger, metrics: m, streams: newStreams(),
		keys: keys, admin: admin, gateway: gateway, tracer: obs.Tracer(o.Traces, "example.com/trawl/api/httpapi"), monitor: watch,
		writeTimeout: writeTimeout, failed: make(chan error, 1),
	}
	s.accounts = &accounts{service: &s.o}
	if err := s.routes(); err != nil {
		return nil, err
	}
	s.http = &http.Server{
		Handler: s.engine, ReadHeaderTimeout: readHeaderTimeout, ReadTimeout: readTimeout, IdleTimeout: idleTimeout,
		MaxHeaderBytes: maxHeaderBytes, ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelWarn),
	}
	s.http.RegisterOnShutdown(s.streams.close)
	return s, nil
}

// Handler returns the routes of the server, for tests that need no socket.
func (s *Server) Handler() http.Handler { return s.engine }

// Start binds the address and serves. A port that is taken is an error, and so
// is a second start.
func (s *Server) Start(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listener != nil || s.stopped {
		return errors.New("httpapi: the server was started or stopped before")
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", s.o.Listen)
	if err != nil {
		return fmt.Errorf("TRAWL_LISTEN: the API cannot listen there, choose another address: %w", err)
	}
	s.listener = l
	go func() {
		if err := s.http.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			s.failed <- fmt.Errorf("httpapi: serving ended: %w", err)
		}
	}()
	s.log.InfoContext(ctx, "listening", slog.String("addr", l.Addr().String()))
	s.greeted.Go(func() { s.greet(ctx) })
	s.unfollow = s.follow(ctx)
	return nil
}

// Addr returns the address that the server listens on, "" before Start.
func (s *Server) Addr() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listener == nil {
		return ""
	}
	return s.listener.Addr().String()
}

// Failed delivers why serving ended by itself, at most once: for whoever does not use
// [Server.Run].
func (s *Server) Failed() <-chan error { return s.failed }

// Stop takes no new connections, lets requests end until ctx does, and drops the
// rest; its error is then ctx's. Stopping twice, or before a start, is harmless.
func (s *Server) Stop(ctx context.Context) error {
	s.stopping.Store(true)
	s.mu.Lock()
	s.stopped = true
	unfollow := s.unfollow
	s.unfollow = nil
	s.mu.Unlock()
	s.greeted.Wait()
	if unfollow != nil {
		defer unfollow()
	}
	if err := s.http.Shutdown(ctx); err != nil {
		return errors.Join(fmt.Errorf("httpapi: requests were dropped: %w", err), s.http.Close())
	}
	return nil
}

// Run starts the server, and stops it when ctx ends, within Options.StopGrace.
// It returns nil for an orderly stop.
func (s *Server) Run(ctx context.Context) error {
	if err := s.Start(ctx); err != nil {
		return err
	}
	stopping := s.o.Notify.Serving(context.WithoutCancel(ctx), "listening on "+s.Addr(), nil)
	var failed error
	select {
	case <-ctx.Done():
	case failed = <-s.failed:
	}
	stopping()
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.o.StopGrace)
	defer cancel()
	return errors.Join(failed, s.Stop(grace))
}

func (s *Server) routes() error {
	r := gin.New()
	// Off, for the answers would be redirects without a problem: a path has one spelling.
	r.RedirectTrailingSlash = false
	r.HandleMethodNotAllowed = true
	// An encoded slash is a character of an id and parts nothing (RFC 3986 s2.2): a gateway that
	// guards /v1/admin would not know it in /v1%2Fadmin.
	r.UseRawPath = true
	// Nothing here asks for the client's address, so no header may set it either.
	if err := r.SetTrustedProxies(nil); err != nil {
		return fmt.Errorf("httpapi: %w", err)
	}
	r.Use(s.observe)
	r.NoRoute(func(c *gin.Context) { s.refuse(c, crawl.Faultf(crawl.CodeNotFound, "no such route")) })
	r.NoMethod(s.refuseMethod)
	r.Match(readMethods, "/healthz", func(c *gin.Context) { c.JSON(http.StatusOK, gin.H{"status": "ok"}) })
	r.Match(readMethods, "/readyz", s.ready)
	r.Match(readMethods, "/metrics", gin.WrapH(obs.MetricsHandler(s.o.Registry)))
	s.engine = r

	s.api = humagin.New(r, apiConfig())
	s.describeKeys()
	register(s, operation("submit-job", http.MethodPost, pathJobs, "Submit a job", http.StatusAccepted,
		submitCodes...), s.submit)
	register(s, operation("list-jobs", http.MethodGet, "/v1/jobs", "List jobs, newest first", http.StatusOK,
		crawl.CodeMalformed), s.list)
	register(s, operation("get-job", http.MethodGet, "/v1/jobs/{id}", "Read the status of a job", http.StatusOK,
		crawl.CodeNotFound, crawl.CodeExpired), s.job)
	register(s, operation("get-result", http.MethodGet, "/v1/jobs/{id}/result",
		"Download the whole result of an ended job", http.StatusOK,
		crawl.CodeNotFound, crawl.CodeJobNotTerminal, crawl.CodeExpired), s.result)
	register(s, operation("list-records", http.MethodGet, "/v1/jobs/{id}/records",
		"Read the accepted pages so far, in the order they were recorded", http.StatusOK,
		crawl.CodeMalformed, crawl.CodeNotFound, crawl.CodeExpired), s.records)
	register(s, operation("list-errors", http.MethodGet, "/v1/jobs/{id}/errors",
		"Read the failed pages so far", http.StatusOK,
		crawl.CodeMalformed, crawl.CodeNotFound, crawl.CodeExpired), s.failures)
	register(s, operation("list-urls", http.MethodGet, "/v1/jobs/{id}/urls",
		"Read every URL known to the job, and what became of it", http.StatusOK,
		crawl.CodeMalformed, crawl.CodeNotFound, crawl.CodeExpired), s.urls)
	register(s, operation("list-webhooks", http.MethodGet, "/v1/jobs/{id}/webhooks",
		"Read which events of the job were delivered to its webhook", http.StatusOK,
		crawl.CodeNotFound, crawl.CodeExpired), s.webhooks)
	register(s, operation("preview-job", http.MethodPost, "/v1/jobs/preview",
		"Ask which URLs a job would admit, and by which rule; nothing is fetched or stored", http.StatusOK,
		crawl.CodeMalformed, crawl.CodeBodyTooLarge, codeUnsupportedMediaType, crawl.CodeSourceNotAllowed,
		crawl.CodeOverloaded), s.previewJob)
	register(s, operation("cancel-job", http.MethodPost, "/v1/jobs/{id}/cancel",
		"Cancel a job; waits up to 10 s for its end", http.StatusOK,
		crawl.CodeNotFound, crawl.CodeExpired, crawl.CodeOverloaded), s.cancel)
	s.controlRoutes()
	register(s, operation("delete-job", http.MethodDelete, "/v1/jobs/{id}", "Remove an ended job and all it holds",
		http.StatusNoContent, crawl.CodeNotFound, crawl.CodeJobNotTerminal, crawl.CodeExpired), s.remove)
	s.eventRoute()
	s.collectionRoutes()
	s.extractRoute()
	if s.administered() {
		s.adminRoutes()
	}
	if s.monitor != nil {
		s.monitorRoutes()
	}
	return s.serveDocs()
}

// refuseMethod answers a method that a path does not take. Under what cannot be a job or a
// collection nothing takes any.
func (s *Server) refuseMethod(c *gin.Context) {
	for prefix, valid := range map[string]func(string) bool{
		"/v1/jobs/": crawl.ValidJobID, "/v1/collections/": crawl.ValidCollection,
	} {
		rest, ok := strings.CutPrefix(c.Request.URL.Path, prefix)
		if id, _, _ := strings.Cut(rest, "/"); ok && !valid(id) {
			c.Writer.Header().Del("Allow")
			s.refuse(c, crawl.Faultf(crawl.CodeNotFound, "no such thing"))
			return
		}
	}
	s.refuse(c, crawl.Faultf(codeMethodNotAllowed, "This address does not take this method; Allow names those that it does."))
}

// readMethods are those of everything that can be read: whoever may GET a thing may
// ask for its header alone (RFC 9110 section 9.3.2).
var readMethods = []string{http.MethodGet, http.MethodHead}

// everyCode is what every route can answer.
var everyCode = []crawl.Code{
	crawl.CodeUnauthenticated, crawl.CodeInvalid, crawl.CodeUnavailable, crawl.CodeInternal,
}

// operation describes a route. Every one can also answer that the key is
// missing, that a parameter is not known, that the store does not answer, and that
// something is broken.
func operation(id, method, path, summary string, success int, codes ...crawl.Code) huma.Operation {
	op := huma.Operation{
		OperationID: id, Method: method, Path: path, Summary: summary, DefaultStatus: success, Tags: []string{"jobs"},
		Security: []map[string][]string{{"bearer": {}}, {"apiKey": {}}}, Responses: map[string]*huma.Response{},
		// Parameters are checked by params.go, which tells all faults in one way.
		SkipValidateParams: true,
	}
	for _, code := range slices.Concat(everyCode, codes) {
		status := strconv.Itoa(statuses[code])
		if r := op.Responses[status]; r != nil {
			r.Description += ", " + string(code)
			continue
		}
		op.Responses[status] = &huma.Response{Description: string(code), Content: map[string]*huma.MediaType{
			problemType: {Schema: &huma.Schema{Ref: "#/components/schemas/" + problemSchema}},
		}}
	}
	return op
}

// handler answers the requests of one route.
type handler[I, O any] func(context.Context, *exchange, *I) (*O, error)

// register adds a route for tenants.
func register[I, O any](s *Server, op huma.Operation, handle handler[I, O]) {
	if s.gateway.set {
		op.Security = append(op.Security, map[string][]string{schemeGateway: {}, schemeTenant: {}})
	}
	serve(s, op, s.authenticate, handle)
}

// serve adds a route, and for a GET its HEAD, of which net/http sends the header
// only. This is the one place where a request of the API is authenticated, and the
// one where its error becomes an answer.
func serve[I, O any](
	s *Server, op huma.Operation, authenticate func(*exchange) error, handle handler[I, O],
) {
	known, faults := queryNames(reflect.TypeFor[I]()), queryFaults
	if _, open := any(*new(I)).(takesFacets); open {
		faults = fixedQueryFaults
	}
	ops := []huma.Operation{op}
	if op.Method == http.MethodGet {
		head := op
		head.Method, head.Hidden, head.Responses = http.MethodHead, true, maps.Clone(op.Responses)
		ops = append(ops, head)
	}
	answer := func(ctx context.Context, in *I) (*O, error) {
		x := exchangeOf(ctx)
		err := authenticate(x)
		if err == nil {
			if x.query = faults(x.c.Request.URL.RawQuery, known); x.query != nil && len(known) == 0 {
				p := params{faults: x.query}
				err = p.err()
			}
		}
		if err != nil {
			s.metrics.refusedUnread(op.OperationID, x, err)
			return nil, x.fail(err)
		}
		out, err := handle(ctx, x, in)
		s.extend(x.c) // reading a slow body, or waiting for an end, used the time for the answer up
		if err != nil {
			return nil, x.fail(err)
		}
		return out, nil
	}
	for _, op := range ops {
		huma.Register(s.api, op, answer)
	}
}

func (s *Server) refuse(c *gin.Context, err error) {
	x := exchangeIn(c)
	s.extend(c)
	x.fail(err).write(c)
}

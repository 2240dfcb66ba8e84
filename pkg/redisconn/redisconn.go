// Package redisconn opens every Redis client of Trawl: a single server, one
// behind Sentinel, or a Cluster, all from one URL and with the same timeouts.
// It is the only place that decides how long a call may hang and how often it
// is sent again.
package redisconn

import (
	"cmp"
	"context"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"example.com/trawl/pkg/crawl"
)

const (
	// dialTimeout is below the 3 s lease renewal: a worker that cannot connect
	// learns it before the lease is lost, and a probe answers within its own limit.
	dialTimeout = 2 * time.Second
	// ioTimeout bounds one command on a live connection. The longest script
	// measured blocks Redis for about 2 s, so that a shorter limit would resend
	// into a server that is merely busy; a longer one would let a silent peer
	// outlive a quarter of the 12 s slice lease.
	ioTimeout = 3 * time.Second
	// maxRetries resends once: enough for the connection that the server closed
	// while it lay in the pool. Every write is fenced or idempotent, so that a
	// resend is harmless; more of them would only stretch an outage.
	maxRetries = 1
	// maxRedirects is how often a Cluster is asked again where a slot is, or because its master
	// does not answer: once for a slot that has moved, and twice for a master that is replaced
	// meanwhile. A master that hangs so costs a call up to four timeouts, which is a lease: who holds
	// one is then late for its renewal, as with any outage that is as long.
	maxRedirects = 3
	// poolSize holds the slices of one worker and the requests of one API
	// without making a busy moment dial.
	poolSize = 32

	defaultPort = "6379"
	// sentinelPort is the port on which Sentinel listens unless told otherwise.
	sentinelPort = "26379"
	// maxDB is far beyond the 16 databases of a default redis-server; it only
	// refuses what cannot be meant.
	maxDB = 1 << 16
)

// Options are what a process chooses about its client; where Redis is, and the
// credentials, are the URL's.
type Options struct {
	// Name is what CLIENT LIST shows for the connections, for example
	// trawl-worker; at most 64 characters without spaces. Empty sends none.
	Name string
	// PoolSize is the number of connections per server; 0 means 32.
	PoolSize int
	// MaxRetries is how often a command that met a broken connection is sent
	// again; 0 means once, -1 never. A Cluster is asked up to three times more in any case.
	MaxRetries int
	// Hooks are added to the client in order, the first outermost.
	Hooks []redis.Hook
	// Observe is told of every call, see [Metrics]. Nil observes nothing, at no cost.
	Observe Observer
	// TLS are the files of a URL that asks for TLS.
	TLS TLS
	// Dial opens the connections in place of the network, for a server in this process
	// or a way of its own to one; TLS is then its business. Nil dials what the URL names.
	Dial Dialer
}

// Dialer opens a connection to a server of a URL: network is tcp or unix, address the
// host:port or the path of the socket. It is bounded by ctx.
type Dialer func(ctx context.Context, network, address string) (net.Conn, error)

// Open returns a client for the Redis that rawURL names. It reads the files of
// [Options.TLS] and does not connect: a server that is down is no fault of the
// URL. The forms are
//
//	redis://[user:password@]host[:port][/db]
//	rediss://…                                    the same over TLS 1.2 or later
//	unix://[user:password@]/path/to/socket[?db=N]
//	redis-sentinel://[user:password@]host[:port],…/master[?db=N]
//	redis-cluster://[user:password@]host[:port],…
//
// User and password are percent-encoded. They are those of the Redis servers;
// sentinels take theirs from the parameters sentinel_user and
// sentinel_password. tls=true asks for TLS in the last two forms. The server's
// certificate must be valid for the host that the URL names, or that Sentinel or
// Cluster announces.
//
// The error is a [crawl.Fault] of code invalid that names every fault, those of
// the files by their settings. It repeats no part of the URL: in a malformed one
// anything may be the password.
//
// Where Redis refuses the user, the password or the certificate, or cannot be
// trusted, the error of each command says what to do.
func Open(rawURL string, o Options) (redis.UniversalClient, error) {
	var (
		p      parser
		remote peer
	)
	u := p.parse(rawURL)
	// Of a URL that is wrong nobody knows what it should have asked for.
	config := p.load(o.TLS, u.tls || len(p.faults) > 0, &remote)
	if err := p.err(); err != nil {
		return nil, err
	}
	options := u.options(o)
	if config != nil && o.Dial == nil {
		options.Dialer = dialer(config)
	}
	c := redis.NewUniversalClient(options)
	for _, h := range o.Hooks {
		c.AddHook(h)
	}
	remote.tls = u.tls || o.Dial != nil // with a way of its own nobody knows
	c.AddHook(advice{&remote})
	if o.Observe != nil {
		c.AddHook(observe{o.Observe}) // the innermost of these: it sees errors as they came
	}
	return c, nil
}

// target is what a URL says.
type target struct {
	addrs                        []string // host:port, or one socket path
	user, password               string
	sentinelUser, sentinelSecret string
	master                       string
	db                           int
	cluster, tls                 bool
}

func (t target) options(o Options) *redis.UniversalOptions {
	retries := cmp.Or(o.MaxRetries, maxRetries)
	if t.cluster {
		// Its client sends again by itself, where the slot is then. That each of those were sent
		// twice to one node would double the time in which a master that hangs is noticed.
		retries = -1
	}
	return &redis.UniversalOptions{
		Addrs:            t.addrs,
		ClientName:       o.Name,
		DB:               t.db,
		Username:         t.user,
		Password:         t.password,
		SentinelUsername: t.sentinelUser,
		SentinelPassword: t.sentinelSecret,
		MasterName:       t.master,
		Dialer:           o.Dial,
		IsClusterMode:    t.cluster,

		DialTimeout: dialTimeout,
		// One attempt: go-redis would dial five times, 10 s before an API
		// could say 503. MaxRetries dials again anyway.
		DialerRetries: 1,
		ReadTimeout:   ioTimeout,
		WriteTimeout:  ioTimeout,
		// Without it a caller's deadline would not end a read that hangs.
		ContextTimeoutEnabled: true,
		MaxRetries:            retries,
		MaxRedirects:          maxRedirects,
		PoolSize:              cmp.Or(o.PoolSize, poolSize),
		// The identity would be one more command on each new connection.
		DisableIdentity: true,
		// A hosted service's extension that other servers refuse on each connect.
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
}

// parser collects the faults of one URL and of its files. Its methods never put a
// piece of the URL into a message.
type parser struct{ faults []crawl.FieldFault }

func (p *parser) fault(field, rule, message string) {
	p.faults = append(p.faults, crawl.FieldFault{Field: field, Rule: rule, Message: message})
}

// parse splits by hand what net/url refuses: a list of hosts in one authority.
func (p *parser) parse(raw string) target {
	var t target
	scheme, rest, ok := strings.Cut(raw, "://")
	if !ok {
		p.fault("scheme", "required", "Begin with "+schemes+".")
		return t
	}
	rest, fragment, _ := strings.Cut(rest, "#")
	rest, query, _ := strings.Cut(rest, "?")
	authority, path := rest, ""
	if i := strings.IndexByte(rest, '/'); i >= 0 {
		authority, path = rest[:i], rest[i+1:]
	}
	hosts := authority
	if i := strings.LastIndexByte(authority, '@'); i >= 0 {
		p.userinfo(&t, authority[:i])
		hosts = authority[i+1:]
	} else if strings.ContainsRune(path+query+fragment, '@') && scheme != "unix" {
		p.fault("password", "encoding", "Percent-encode / as %2F, ? as %3F and # as %23 in user and password.")
	}
	if strings.Contains(raw, "#") {
		p.fault("fragment", "unknown", "Remove the part from # on; in a password write %23.")
	}

	q := p.query(query)
	switch scheme {
	case "redis", "rediss":
		t.tls = scheme == "rediss"
		p.hosts(&t, hosts, defaultPort, false)
		if path = strings.TrimSuffix(path, "/"); path != "" {
			t.db = p.db("path", path)
		} else {
			p.dbParam(&t, q)
		}
	case "unix":
		if hosts != "" {
			p.fault("host", "unknown", "Write unix:///path/to/socket with three slashes: a socket has no host.")
		}
		if path == "" {
			p.fault("path", "required", "Add the path of the socket: unix:///run/redis.sock.")
		}
		socket, err := url.PathUnescape(path)
		if err != nil {
			p.fault("path", "encoding", "Percent-encode the path of the socket properly.")
		}
		t.addrs = []string{"/" + socket}
		p.dbParam(&t, q)
	case "redis-sentinel":
		p.hosts(&t, hosts, sentinelPort, true)
		t.master = p.master(path)
		p.dbParam(&t, q)
		t.sentinelUser, t.sentinelSecret = q.take("sentinel_user"), q.take("sentinel_password")
		t.tls = p.boolean("tls", q.take("tls"))
	case "redis-cluster":
		t.cluster = true
		p.hosts(&t, hosts, defaultPort, true)
		if strings.Trim(path, "/") != "" {
			p.fault("path", "unknown", "Remove the path: a Cluster has only database 0.")
		}
		t.tls = p.boolean("tls", q.take("tls"))
	default:
		p.fault("scheme", "enum", "Begin with "+schemes+".")
		return t
	}
	if len(q) > 0 {
		p.fault("query", "unknown", "Known parameters are db (not for a Cluster); sentinel_user and "+
			"sentinel_password (Sentinel); tls (Sentinel and Cluster). Each at most once; remove the others.")
	}
	return t
}

const schemes = "redis://, rediss://, unix://, redis-sentinel:// or redis-cluster://"

func (p *parser) userinfo(t *target, s string) {
	user, password, _ := strings.Cut(s, ":")
	for _, f := range []struct {
		field, raw string
		into       *string
	}{{"user", user, &t.user}, {"password", password, &t.password}} {
		v, err := url.PathUnescape(f.raw)
		if err != nil {
			p.fault(f.field, "encoding", "Write a literal % as %25.")
		}
		*f.into = v
	}
	if t.user != "" && t.password == "" {
		p.fault("password", "required", "Add the password: user:password@host. Without a user write :password@host.")
	}
}

func (p *parser) hosts(t *target, list, port string, several bool) {
	parts := strings.Split(list, ",")
	if len(parts) > 1 && !several {
		p.fault("host", "max", "Name one host; several need redis-sentinel:// or redis-cluster://.")
		return
	}
	for i, part := range parts {
		field := "host"
		if several {
			field = "host[" + strconv.Itoa(i) + "]"
		}
		h, pt, ok := splitHostPort(part, port)
		switch n, err := strconv.Atoi(pt); {
		case !ok:
			p.fault(field, "format", "Write host or host:port; an IPv6 address in brackets.")
		case h == "":
			p.fault(field, "required", "Add a host name or address.")
		case err != nil || n < 1 || n > 65535:
			p.fault(field, "port", "Write a port from 1 to 65535.")
		default:
			t.addrs = append(t.addrs, net.JoinHostPort(h, strconv.Itoa(n)))
		}
	}
}

// splitHostPort is net.SplitHostPort with a default port. Host names keep to
// what can be one, so that a stray separator is refused and not looked up.
func splitHostPort(s, port string) (host, prt string, ok bool) {
	bare := strings.HasPrefix(s, "[") && strings.HasSuffix(s, "]")
	if bare || !strings.Contains(s, ":") {
		s += ":" + port
	}
	host, prt, err := net.SplitHostPort(s)
	if err != nil {
		return "", "", false
	}
	for _, r := range host {
		if r <= ' ' || r >= 0x7f || strings.ContainsRune(`%/\?#@[],"'<>`, r) {
			return "", "", false
		}
	}
	return host, prt, true
}

func (p *parser) master(path string) string {
	m, err := url.PathUnescape(strings.TrimSuffix(path, "/"))
	switch {
	case err != nil || strings.ContainsAny(m, "/ \t\r\n"):
		p.fault("path", "format", "After the hosts write / and the name of the master, nothing else.")
	case m == "":
		p.fault("path", "required", "Add the name of the master: redis-sentinel://host:26379/mymaster.")
	}
	return m
}

func (p *parser) db(field, s string) int {
	n, err := strconv.Atoi(s)
	if err != nil || n < 0 || n > maxDB {
		p.fault(field, "format", "Write the number of the database, 0 for the first. If the password has / or @ in it, write %2F and %40.")
		return 0
	}
	return n
}

func (p *parser) dbParam(t *target, q params) {
	if s := q.take("db"); s != "" {
		t.db = p.db("query.db", s)
	}
}

func (p *parser) boolean(name, s string) bool {
	if s == "" {
		return false
	}
	v, err := strconv.ParseBool(s)
	if err != nil {
		p.fault("query."+name, "format", "Write true or false.")
	}
	return v
}

// params are the parameters of a URL that nobody has taken yet.
type params url.Values

func (p *parser) query(s string) params {
	v, err := url.ParseQuery(s)
	if err != nil {
		p.fault("query", "format", "Write the parameters as name=value, joined by &, percent-encoded.")
	}
	return params(v)
}

// take removes a parameter that was given once; one given twice stays and is
// reported with the unknown ones.
func (q params) take(name string) string {
	vs := q[name]
	if len(vs) != 1 {
		return ""
	}
	delete(q, name)
	return vs[0]
}

package config

import (
	"fmt"
	"log/slog"
	"time"
)

// Shared holds the settings of every process.
type Shared struct {
	RedisURL string `name:"redis-url" default:"${default_redis_url}" nonempty:"" secret:"" help:"Where Redis is: redis://, rediss://, unix://, redis-sentinel://host:port,.../master or redis-cluster://host:port,..."`

	RedisTLS

	// AllowedSources is what may be crawled; empty refuses all. The API checks
	// submissions by it, a worker every link.
	AllowedSources string `name:"allowed-sources" default:"${default_sources}" help:"What may be crawled, comma separated: https://docs.example.org/3/, *.example.org, or * for every public host; empty refuses all."`

	// HostDelay (0 to 60 s) and HostConcurrency (1 to 256) are the politeness
	// towards one host over all jobs and workers. The API decides plans by them.
	HostDelay       time.Duration `name:"host-delay" default:"500ms" max:"60s" help:"Least time between two requests to one host, over the whole cluster; 0s to 60s."`
	HostConcurrency int           `name:"host-concurrency" default:"2" min:"1" max:"256" help:"Most requests in flight to one host, over the whole cluster; 1 to 256."`

	// ShutdownGrace (0 to 10 min) is how long work in flight may go on after
	// the signal to stop.
	ShutdownGrace time.Duration `name:"shutdown-grace" default:"20s" max:"10m" help:"How long work in flight may go on after the signal to stop; 0s to 10m."`

	LogLevel  slog.Level `name:"log-level" default:"info" help:"Least level that is logged: debug, info, warn or error."`
	LogFormat string     `name:"log-format" default:"${default_log_format}" oneof:"json text" help:"json for machines, text for people."`
}

// RedisTLS names PEM files, for a Redis over TLS: who signed its certificate (empty: whom the
// system trusts), and what this process shows to a Redis that asks for a certificate. The
// fields are those of redisconn.TLS, so that one converts to the other.
type RedisTLS struct {
	CA   string `name:"redis-ca" placeholder:"FILE" help:"PEM file of the CAs that may have signed the certificate of Redis; empty for those that the system trusts."`
	Cert string `name:"redis-cert" placeholder:"FILE" help:"PEM file of the certificate that is shown to Redis; with redis-cert-key."`
	Key  string `name:"redis-cert-key" placeholder:"FILE" help:"PEM file of the key of redis-cert."`
}

// API holds the settings of the HTTP process.
type API struct {
	Shared
	Serving
}

// Worker holds the settings of the crawling process.
type Worker struct {
	Shared

	// Listen is the address of /healthz, /readyz and /metrics; empty for none.
	Listen string `name:"worker-listen" default:"127.0.0.1:8009" address:"" help:"Address of the worker's /healthz, /readyz and /metrics; empty for none."`

	Crawling
}

// AllInOne holds the settings of both in one process. It differs in what a person who
// tries it out wants: by default RedisURL is empty, which stands for a store in the
// process itself, AllowedSources is *, and LogFormat is text. Keys may be empty.
type AllInOne struct {
	Shared
	Serving
	Crawling
}

// Serving holds the settings of what answers over HTTP.
type Serving struct {
	// Listen is the address of the API; port 0 takes a free one.
	Listen string `name:"listen" default:"127.0.0.1:8008" nonempty:"" address:"" help:"Address that the API listens on."`

	// Keys are the API keys of each tenant. A key names one tenant only. Without any
	// there is AdminKey, to make keys with, or GatewaySecret.
	Keys Keys `name:"api-keys" placeholder:"tenant:key,..." secret:"" help:"The keys of the tenants: tenant:key,tenant:key. A key has 16 to 256 visible characters; a tenant may have several."`

	// AdminKey opens the admin API, which keeps tenants, their quotas and their keys in
	// Redis, and /monitor; empty: there is neither.
	AdminKey string `name:"admin-key" key:"" secret:"" help:"Opens /v1/admin, where tenants and their keys are made, and /monitor; 16 to 256 visible characters, empty for neither."`

	// MonitorWrite lets who has AdminKey change the queue at /monitor: cancel, delete, archive and run
	// its tasks, pause it.
	MonitorWrite bool `name:"monitor-write" default:"false" help:"Lets the admin change the queue at /monitor; without it that page only shows."`

	// GatewaySecret is what a gateway in front sends in X-Gateway-Secret, so that the
	// tenant it names in X-Tenant-ID is believed; empty: no gateway is.
	GatewaySecret string `name:"gateway-secret" key:"" secret:"" help:"Sent by a gateway in X-Gateway-Secret, so that the tenant it names in X-Tenant-ID is believed; 16 to 256 visible characters."`

	Quota

	// RedisWait (0 to 16) is the number of replicas that must have a submission
	// before it is answered.
	RedisWait int `name:"redis-wait" default:"0" min:"0" max:"16" help:"Replicas that must have a submission before it is answered; 0 to 16."`
}

// Quota holds what every tenant is granted at most; a tenant's own quota can narrow it. The
// fields are those of crawl.Quota, so that one converts to the other. 0 is no bound, where
// it can be given.
type Quota struct {
	MaxQueued            int64 `name:"max-queued" default:"10000" min:"1" max:"1000000" help:"Jobs of one tenant that may wait for their turn; 1 to 1000000."`
	MaxRunning           int64 `name:"max-running" default:"10" min:"1" max:"10000" help:"Jobs of one tenant that run at once, the others wait; 1 to 10000."`
	MaxPages             int64 `name:"max-pages" default:"1000000" min:"1" max:"1000000" help:"URLs that one job may admit; 1 to 1000000."`
	PagesPerDay          int64 `name:"pages-per-day" default:"0" min:"0" max:"1000000000000" help:"Pages of one tenant from midnight to midnight UTC; 0 for no bound."`
	MaxBytes             int64 `name:"max-bytes" default:"10737418240" min:"0" max:"1000000000000000" help:"Decoded bytes of the pages of one job; 0 for no bound."`
	MaxKeptBytes         int64 `name:"max-kept-bytes" default:"1073741824" min:"0" max:"1000000000000" help:"Bytes that the content of the pages of one job may take in Redis; 0 for no bound."`
	MaxItems             int64 `name:"max-items" default:"1000000" min:"0" max:"100000000" help:"Items of one collection; 0 for no bound."`
	SubmissionsPerSecond int64 `name:"submissions-per-second" default:"0" min:"0" max:"1000000" help:"Submissions of one tenant in a second, replays included; 0 for no bound."`
}

// Crawling holds the settings of what fetches pages.
type Crawling struct {
	// PrivateHosts is what may be dialled though it is no public address.
	PrivateHosts string `name:"private-hosts" help:"What may be dialled though private, comma separated: address:port, address, CIDR, or name:port."`

	// DeniedNetworks are public addresses that are private in fact: one's own, or what a
	// gateway of one's own translates into private ones.
	DeniedNetworks string `name:"denied-networks" help:"What may not be dialled though public, comma separated CIDRs: your own networks, the prefix of your NAT64 gateway."`

	// Concurrency (1 to 1,024) is the number of pages in flight in this worker.
	Concurrency int `name:"concurrency" default:"64" min:"1" max:"1024" help:"Pages in flight in this worker; 1 to 1024."`

	// UserAgent identifies the crawler to the sites: a product token and, for
	// their owners, a contact. One line of at most 256 printable characters.
	UserAgent string `name:"user-agent" default:"TrawlBot/0.1 (+https://example.com/trawl)" nonempty:"" printable:"" help:"What the crawler calls itself: a product token and a contact URL."`
}

// Attrs returns the settings for a log line at the start, by the names of their
// variables and without secrets: of keys their number, of a Redis URL its
// scheme, hosts and path.
func (c API) Attrs() []slog.Attr { return attrs(c) }

// Attrs is as [API.Attrs].
func (c AllInOne) Attrs() []slog.Attr { return attrs(c) }

// Attrs is as [API.Attrs].
func (c Worker) Attrs() []slog.Attr { return attrs(c) }

// In wraps err, if it is not nil, as a fault of the named setting, so that a
// main reports what it found in a value together with the faults of this
// package: errors.Join(err, config.In("TRAWL_ALLOWED_SOURCES", err2)).
func In(setting string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", setting, err)
}

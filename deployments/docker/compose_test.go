package docker_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"example.com/trawl/pkg/crawltest/deploytest"
)

// project is what Compose makes of compose.yaml: interpolated, merged and normalized.
type project struct {
	Services map[string]*service `json:"services"`
	Networks map[string]*struct {
		Internal bool `json:"internal"`
	} `json:"networks"`
}

type service struct {
	Environment   map[string]string `json:"environment"`
	User          string            `json:"user"`
	ContainerName string            `json:"container_name"`
	ReadOnly      bool              `json:"read_only"`
	CapDrop       []string          `json:"cap_drop"`
	SecurityOpt   []string          `json:"security_opt"`
	MemLimit      string            `json:"mem_limit"`
	StopGrace     string            `json:"stop_grace_period"`
	Command       []string          `json:"command"`
	Networks      map[string]any    `json:"networks"`
	Ports         []struct {
		HostIP    string `json:"host_ip"`
		Target    int    `json:"target"`
		Published string `json:"published"`
	} `json:"ports"`
	Secrets []struct {
		Source string `json:"source"`
		Target string `json:"target"`
	} `json:"secrets"`
}

// compose loads compose.yaml as Compose does, with nothing in the environment but what is given.
func compose(t *testing.T, env ...string) ([]byte, error) {
	t.Helper()
	tool := deploytest.Tool(t, "compose-config")
	cmd := exec.CommandContext(t.Context(), tool, "../compose.yaml")
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH")}, env...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%w: %s", err, stderr.Bytes())
	}
	return out, err
}

// examples are the settings of .env.example.
func examples(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile("../.env.example")
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			all = append(all, line)
		}
	}
	return all
}

// TestCompose holds compose.yaml to what its comments promise, and each check to finding a copy that
// breaks it.
func TestCompose(t *testing.T) {
	t.Parallel()
	out, err := compose(t, examples(t)...)
	if err != nil {
		t.Fatal(err)
	}
	load := func() *project {
		p := &project{}
		if err := json.Unmarshal(out, p); err != nil {
			t.Fatal(err)
		}
		return p
	}
	for _, fault := range composeFaults(t, load()) {
		t.Error(fault)
	}
	for what, breakIt := range map[string]func(*project){
		"misspelled setting": func(p *project) { p.Services["worker"].Environment["TRAWL_CONCURENCY"] = "8" },
		"value out of range": func(p *project) { p.Services["api"].Environment["TRAWL_HOST_DELAY"] = "2h" },
		"missing secret":     func(p *project) { p.Services["api"].Secrets = nil },
		"short grace":        func(p *project) { p.Services["worker"].StopGrace = "20s" },
		"no memory limit":    func(p *project) { p.Services["worker"].MemLimit = "" },
		"writable root":      func(p *project) { p.Services["api"].ReadOnly = false },
		"capabilities":       func(p *project) { p.Services["redis"].CapDrop = nil },
		"new privileges":     func(p *project) { p.Services["grafana"].SecurityOpt = nil },
		"root":               func(p *project) { p.Services["worker"].User = "" },
		"open port":          func(p *project) { p.Services["api"].Ports[0].HostIP = "" },
		"wrong port":         func(p *project) { p.Services["api"].Ports[0].Target = 8009 },
		"port of a worker":   func(p *project) { p.Services["worker"].Ports = p.Services["api"].Ports },
		"name of a worker":   func(p *project) { p.Services["worker"].ContainerName = "worker" },
		"Redis with a way":   func(p *project) { p.Services["redis"].Networks["front"] = nil },
		"eviction":           func(p *project) { p.Services["redis"].Command = []string{"redis-server"} },
		"two addresses":      func(p *project) { p.Services["prometheus"].Networks["front"] = nil },
		"no way to Redis":    func(p *project) { delete(p.Services["worker"].Networks, "redis") },
		"no way to sites":    func(p *project) { delete(p.Services["worker"].Networks, "internet") },
	} {
		p := load()
		breakIt(p)
		if len(composeFaults(t, p)) == 0 {
			t.Errorf("%s: no check finds it", what)
		}
	}
}

// TestComposeAsksForSources: without a list of what may be crawled nothing starts, rather than a
// service that refuses every job.
func TestComposeAsksForSources(t *testing.T) {
	t.Parallel()
	if _, err := compose(t); err == nil || !strings.Contains(err.Error(), "TRAWL_ALLOWED_SOURCES") {
		t.Errorf("without TRAWL_ALLOWED_SOURCES: %v", err)
	}
}

// TestExamplesCount: every setting of .env.example is one that compose.yaml reads.
func TestExamplesCount(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../compose.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, example := range examples(t) {
		name, _, _ := strings.Cut(example, "=")
		if !bytes.Contains(text, []byte("${"+name+":")) {
			t.Errorf("compose.yaml does not read %s", name)
		}
	}
}

func composeFaults(t *testing.T, p *project) []string {
	t.Helper()
	var faults []string
	fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	for name, s := range p.Services {
		if !s.ReadOnly || !slices.Contains(s.CapDrop, "ALL") || !slices.Contains(s.SecurityOpt, "no-new-privileges:true") {
			fault("%s is not hardened", name)
		}
		if bytesOf(s.MemLimit) == 0 {
			fault("%s has no memory limit", name)
		}
		for _, port := range s.Ports {
			if port.HostIP != "127.0.0.1" {
				fault("%s publishes %s to everybody", name, port.Published)
			}
		}
	}
	faults = append(faults, processFaults(t, deploytest.API, p.Services["api"])...)
	faults = append(faults, processFaults(t, deploytest.Worker, p.Services["worker"])...)
	if w := p.Services["worker"]; w.ContainerName != "" || len(w.Ports) > 0 {
		fault("worker has a name or a port, so that --scale cannot start a second one")
	}
	redis := p.Services["redis"]
	for network := range redis.Networks {
		if !p.Networks[network].Internal {
			fault("redis is in the network %s, which leads out", network)
		}
	}
	if line := strings.Join(redis.Command, " "); !strings.Contains(line, "--maxmemory-policy noeviction") ||
		!strings.Contains(line, "--appendonly yes") || !strings.Contains(line, "--maxmemory ") {
		fault("redis is started as %q", line)
	}
	for _, pair := range []struct {
		a, b     string
		networks int
	}{
		{"api", "redis", 1},
		{"worker", "redis", 1},
		{"prometheus", "redis", 0},
		// More than one would be two addresses by one name, and the same process twice in every sum.
		{"prometheus", "api", 1},
		{"prometheus", "worker", 1},
		{"grafana", "prometheus", 2},
	} {
		if n := common(p.Services[pair.a], p.Services[pair.b]); n != pair.networks {
			fault("%s and %s have %d networks in common, not %d", pair.a, pair.b, n, pair.networks)
		}
	}
	out := 0
	for network := range p.Services["worker"].Networks {
		if !p.Networks[network].Internal {
			out++
		}
	}
	if out != 1 {
		fault("worker has %d networks that lead out", out)
	}
	return faults
}

// processFaults are those of a service that is a process of Trawl.
func processFaults(t *testing.T, process deploytest.Process, s *service) []string {
	t.Helper()
	var faults []string
	fault := func(format string, args ...any) {
		faults = append(faults, string(process)+": "+fmt.Sprintf(format, args...))
	}
	settings, err := deploytest.Load(t, process, s.Environment, func(path string) bool {
		for _, secret := range s.Secrets {
			if secret.Target == path {
				return true
			}
		}
		return false
	})
	if err != nil {
		fault("%v", err)
		return faults
	}
	if s.User != "65532:65532" {
		fault("runs as %q", s.User)
	}
	if grace, err := time.ParseDuration(s.StopGrace); err != nil || grace < settings.ShutdownGrace+5*time.Second {
		fault("is killed after %q, and may stop for %v", s.StopGrace, settings.ShutdownGrace)
	}
	host, port, _ := net.SplitHostPort(settings.Listen)
	if host != "0.0.0.0" {
		fault("listens on %s, which nobody else reaches", settings.Listen)
	}
	for _, published := range s.Ports {
		if strconv.Itoa(published.Target) != port {
			fault("publishes %d and listens on %s", published.Target, port)
		}
	}
	heap, limit := memoryLimit(s.Environment["GOMEMLIMIT"]), bytesOf(s.MemLimit)
	if heap < limit/2 || heap > limit*95/100 {
		fault("GOMEMLIMIT %s is not half to 95 %% of the limit of %d bytes", s.Environment["GOMEMLIMIT"], limit)
	}
	return faults
}

func common(a, b *service) int {
	n := 0
	for network := range a.Networks {
		if _, ok := b.Networks[network]; ok {
			n++
		}
	}
	return n
}

func bytesOf(s string) int64 {
	n, _ := strconv.ParseInt(s, 10, 64) // Compose writes bytes; anything else is no limit
	return n
}

func memoryLimit(s string) int64 {
	n, _ := strconv.ParseInt(strings.TrimSuffix(s, "MiB"), 10, 64)
	return n << 20
}

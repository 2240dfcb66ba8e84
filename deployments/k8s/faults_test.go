package k8s_test

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"code.dny.dev/ssrf"
	"github.com/goccy/go-yaml"

	"example.com/trawl/pkg/crawltest/deploytest"
	"example.com/trawl/pkg/netguard"
)

const nameLabel = "app.kubernetes.io/name"

// external are the Secrets that the base leaves to others, and the keys that it takes of each.
var external = map[string][]string{
	"trawl-api": {"api-keys", "admin-key"}, "trawl-redis": {"api-url", "worker-url"},
}

// check collects the faults of one build.
type check struct {
	t      *testing.T
	all    []object
	faults []string
}

func (c *check) fault(o *object, format string, args ...any) {
	c.faults = append(c.faults, o.String()+": "+fmt.Sprintf(format, args...))
}

// faults says where the objects of a build do not fit together.
func faults(t *testing.T, all []object) []string {
	t.Helper()
	c := &check{t: t, all: all}
	for i := range all {
		o := &all[i]
		if o.Kind != "Namespace" && o.Metadata.Namespace != "trawl" {
			c.fault(o, "is in the namespace %q", o.Metadata.Namespace)
		}
		if o.Spec.Template != nil {
			c.workload(o)
		}
		switch o.Kind {
		case "Service", "PodDisruptionBudget", "PodMonitor":
			c.selected(o)
		case "ServiceAccount":
			if o.Token == nil || *o.Token {
				c.fault(o, "gets a token of the API server")
			}
		case "NetworkPolicy":
			c.policy(o)
		case "ScaledObject":
			c.triggers(o)
		}
	}
	c.isolation()
	return c.faults
}

// kind returns the objects of a kind.
func (c *check) kind(kind string) []*object {
	var found []*object
	for i := range c.all {
		if c.all[i].Kind == kind {
			found = append(found, &c.all[i])
		}
	}
	return found
}

func (c *check) find(kind, name string) *object {
	for _, o := range c.kind(kind) {
		if o.Metadata.Name == name {
			return o
		}
	}
	return nil
}

// pods returns the workloads whose pods a selector means.
func (c *check) pods(s *selector) []*object {
	var found []*object
	for i := range c.all {
		if t := c.all[i].Spec.Template; t != nil && s.selects(t.Metadata.Labels) {
			found = append(found, &c.all[i])
		}
	}
	return found
}

// hasPort reports whether a pod has a port of this name or number.
func hasPort(workload *object, p any) bool {
	for _, c := range workload.Spec.Template.Spec.Containers {
		for _, has := range c.Ports {
			if s := fmt.Sprint(p); s == has.Name || s == strconv.Itoa(has.ContainerPort) {
				return true
			}
		}
	}
	return false
}

func (c *check) workload(o *object) {
	if !o.Spec.Selector.selects(o.Spec.Template.Metadata.Labels) {
		c.fault(o, "does not select its own pods")
	}
	p := &o.Spec.Template.Spec
	if p.Token == nil || *p.Token || p.ServiceLinks == nil || *p.ServiceLinks {
		c.fault(o, "gets a token, or variables of Services that begin as settings do")
	}
	if c.find("ServiceAccount", p.ServiceAccountName) == nil {
		c.fault(o, "there is no ServiceAccount %s", p.ServiceAccountName)
	}
	if !p.Security.RunAsNonRoot || p.Security.RunAsUser == 0 || p.Security.Seccomp.Type != "RuntimeDefault" {
		c.fault(o, "the level restricted refuses its pods")
	}
	if len(p.Containers) != 1 {
		c.fault(o, "has %d containers; teach these checks about them", len(p.Containers))
		return
	}
	k := &p.Containers[0]
	if s := k.Security; s.Escalation == nil || *s.Escalation || !s.ReadOnlyRootFilesystem ||
		!slices.Equal(s.Capabilities.Drop, []string{"ALL"}) || len(s.Capabilities.Add) > 0 {
		c.fault(o, "the container may more than it needs")
	}
	asked, limit := mebibytes(k.Resources.Requests["memory"]), mebibytes(k.Resources.Limits["memory"])
	if asked == 0 || limit < asked || k.Resources.Requests["cpu"] == nil {
		c.fault(o, "asks for %v and is limited to %v", k.Resources.Requests, k.Resources.Limits)
	}
	if k.Startup == nil || k.Readiness == nil || k.Liveness == nil {
		c.fault(o, "lacks a probe")
		return
	}
	if o.Kind != "Deployment" {
		return
	}
	c.process(o, k, asked, limit)
	scalers := 0
	for _, kind := range []string{"HorizontalPodAutoscaler", "ScaledObject"} {
		for _, s := range c.kind(kind) {
			if r := s.Spec.ScaleTargetRef; r.Kind == o.Kind && r.Name == o.Metadata.Name {
				scalers++
			}
		}
	}
	if scalers != 1 || o.Spec.Replicas != nil {
		c.fault(o, "is scaled by %d autoscalers, and by hand: %v", scalers, o.Spec.Replicas != nil)
	}
}

// lastWords is how long a process may take to end when its grace is over, and some more: a worker records what
// it has and gives the rest back, which was measured to take up to 13 s with a slow Redis.
var lastWords = map[deploytest.Process]time.Duration{
	deploytest.API: 5 * time.Second, deploytest.Worker: 15 * time.Second,
}

// process checks a Deployment of one of our programs.
func (c *check) process(o *object, k *container, asked, limit int) {
	process := deploytest.Process(strings.TrimPrefix(o.Metadata.Name, "trawl-"))
	env := map[string]string{}
	for _, from := range k.EnvFrom {
		config := c.find("ConfigMap", from.ConfigMapRef.Name)
		if config == nil {
			c.fault(o, "there is no ConfigMap %s", from.ConfigMapRef.Name)
			continue
		}
		for name, value := range config.Data {
			env[name] = fmt.Sprint(value)
		}
	}
	heap := ""
	for _, e := range k.Env {
		if e.Name == "GOMEMLIMIT" {
			heap = e.ValueFrom.Resource.Resource
			continue
		}
		env[e.Name] = e.Value
	}
	if heap != "requests.memory" || asked > limit*9/10 {
		c.fault(o, "the heap is held to %q, which is %d MiB of %d", heap, asked, limit)
	}
	files := c.files(o, k)
	settings, err := deploytest.Load(c.t, process, env, func(p string) bool { return slices.Contains(files, p) })
	if err != nil {
		c.fault(o, "%v", err)
		return
	}
	host, number, _ := net.SplitHostPort(settings.Listen)
	if host != "" || len(k.Ports) != 1 || strconv.Itoa(k.Ports[0].ContainerPort) != number {
		c.fault(o, "listens on %s, and says %v", settings.Listen, k.Ports)
	}
	for _, want := range []struct {
		path string
		*probe
	}{{"/healthz", k.Startup}, {"/readyz", k.Readiness}, {"/healthz", k.Liveness}} {
		if want.HTTP == nil || want.HTTP.Path != want.path || !hasPort(o, want.HTTP.Port) {
			c.fault(o, "a probe is not of %s, or of a port that the pod has", want.path)
		}
	}
	most := time.Duration(o.Spec.Template.Spec.Grace-k.Lifecycle.PreStop.Sleep.Seconds) * time.Second
	if takes := settings.ShutdownGrace + lastWords[process]; most < takes {
		c.fault(o, "is killed %v after it was told to stop, and may take %v", most, takes)
	}
	if user := imageUser(c.t); strconv.Itoa(o.Spec.Template.Spec.Security.RunAsUser) != user {
		c.fault(o, "runs as %d, and its image as %s", o.Spec.Template.Spec.Security.RunAsUser, user)
	}
	if !regexp.MustCompile(`^registry\.example\.com/trawl-` + string(process) + `:v[0-9.]+$`).MatchString(k.Image) {
		c.fault(o, "runs %s: which version that is must be said", k.Image)
	}
}

// files lists the paths at which the secrets of a container are.
func (c *check) files(o *object, k *container) []string {
	var all []string
	for _, m := range k.Mounts {
		i := slices.IndexFunc(o.Spec.Template.Spec.Volumes, func(v volume) bool { return v.Name == m.Name })
		if i < 0 {
			c.fault(o, "there is no volume %s", m.Name)
			continue
		}
		secret := o.Spec.Template.Spec.Volumes[i].Secret
		if secret == nil {
			continue
		}
		keys := external[secret.Name]
		if there := c.find("Secret", secret.Name); there != nil {
			keys = nil
			for key := range there.Data {
				keys = append(keys, key)
			}
		}
		if keys == nil {
			c.fault(o, "there is no Secret %s", secret.Name)
		}
		for _, item := range secret.Items {
			if slices.Contains(keys, item.Key) {
				all = append(all, path.Join(m.Path, item.Path))
			} else {
				c.fault(o, "the Secret %s has no %s", secret.Name, item.Key)
			}
		}
		if secret.Items == nil {
			for _, key := range keys {
				all = append(all, path.Join(m.Path, key))
			}
		}
	}
	return all
}

// imageUser is the user of the images.
func imageUser(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../docker/Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`(?m)^USER (\d+):`).FindSubmatch(text)
	if m == nil {
		t.Fatal("the Dockerfile names no user")
	}
	return string(m[1])
}

// selected checks what points at the pods of one workload.
func (c *check) selected(o *object) {
	pods := c.pods(&o.Spec.Selector)
	if len(pods) != 1 || !o.Spec.Selector.given {
		c.fault(o, "selects the pods of %v", pods)
		return
	}
	for _, p := range o.Spec.Ports {
		if !hasPort(pods[0], p.TargetPort) {
			c.fault(o, "%v has no port %v", pods[0], p.TargetPort)
		}
	}
	for _, p := range o.Spec.Endpoints {
		if !hasPort(pods[0], p.Port) {
			c.fault(o, "%v has no port %v", pods[0], p.Port)
		}
	}
}

// triggers checks that KEDA asks Prometheus for what is there: expressions that the rules record, whose
// own tests know every metric. A fallback counts only with an average (KEDA's CheckFallbackValid).
func (c *check) triggers(o *object) {
	recorded := recordings(c.t)
	averages := 0
	for _, trigger := range o.Spec.Triggers {
		if query := trigger.Metadata["query"]; query == "" || !slices.Contains(recorded, query) {
			c.fault(o, "no rule records %q", query)
		}
		if trigger.MetricType == "AverageValue" {
			averages++
		}
	}
	if o.Spec.Fallback == nil || averages == 0 {
		c.fault(o, "what it does without Prometheus is not said")
	}
}

// recordings are the expressions that the rules record.
func recordings(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile("../prometheus/rules/trawl.yml")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Groups []struct {
			Rules []struct{ Record, Expr string } `yaml:"rules"`
		} `yaml:"groups"`
	}
	if err := yaml.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, g := range file.Groups {
		for _, r := range g.Rules {
			if r.Record != "" {
				all = append(all, r.Expr)
			}
		}
	}
	return all
}

// policy checks that the rules of a NetworkPolicy mean something.
func (c *check) policy(o *object) {
	pods := c.pods(&o.Spec.PodSelector)
	if len(pods) == 0 {
		c.fault(o, "selects no pods")
	}
	for _, rule := range o.Spec.Ingress {
		for _, p := range rule.Ports {
			for _, pod := range pods {
				if !hasPort(pod, p.Port) {
					c.fault(o, "%v has no port %v", pod, p.Port)
				}
			}
		}
	}
	for _, p := range slices.Concat(o.Spec.Ingress, o.Spec.Egress) {
		if len(p.From)+len(p.To) == 0 || len(p.Ports) == 0 {
			c.fault(o, "opens a way to everybody, or by every protocol")
		}
	}
}

// isolation checks that all is closed but for what is opened, and that workers reach what is public: what the
// worker's own guard lets pass, and nothing else.
func (c *check) isolation() {
	deny := c.find("NetworkPolicy", "default-deny")
	internet := c.find("NetworkPolicy", "to-internet")
	if deny == nil || internet == nil {
		c.faults = append(c.faults, "there is no NetworkPolicy default-deny, or to-internet")
		return
	}
	types := slices.Clone(deny.Spec.PolicyTypes)
	slices.Sort(types)
	if !slices.Equal(types, []string{"Egress", "Ingress"}) || len(c.pods(&deny.Spec.PodSelector)) != len(c.workloads()) {
		c.fault(deny, "leaves something open")
	}
	if pods := c.pods(&internet.Spec.PodSelector); len(pods) != 1 || pods[0].Metadata.Labels[nameLabel] != "trawl-worker" {
		c.fault(internet, "lets %v out", pods)
	}
	for _, a := range addresses() {
		if want, got := netguard.Public(a), reaches(internet, a); want != got {
			c.fault(internet, "%v: the worker lets it pass: %v, the network: %v", a, want, got)
		}
	}
}

func (c *check) workloads() []*object {
	return slices.Concat(c.kind("Deployment"), c.kind("StatefulSet"))
}

// reaches reports whether the policy lets its pods call an address.
func reaches(policy *object, a netip.Addr) bool {
	for _, rule := range policy.Spec.Egress {
		for _, to := range rule.To {
			if to.IPBlock == nil || !netip.MustParsePrefix(to.IPBlock.CIDR).Contains(a) {
				continue
			}
			if !slices.ContainsFunc(to.IPBlock.Except, func(e string) bool { return netip.MustParsePrefix(e).Contains(a) }) {
				return true
			}
		}
	}
	return false
}

// addresses are both ends of every range that is not public, the neighbours of those ends, and some more.
func addresses() []netip.Addr {
	var all []netip.Addr
	ranges := slices.Concat(ssrf.IPv4DeniedPrefixes, ssrf.IPv6DeniedPrefixes, []netip.Prefix{
		ssrf.IPv6GlobalUnicast, netip.MustParsePrefix("168.63.129.16/32"), netip.MustParsePrefix("fc00::/7"),
		netip.MustParsePrefix("fe80::/10"),
	})
	for _, r := range ranges {
		first, last := r.Masked().Addr(), lastOf(r)
		for _, a := range []netip.Addr{first.Prev(), first, last, last.Next()} {
			if a.IsValid() {
				all = append(all, a)
			}
		}
	}
	for _, s := range []string{
		"1.1.1.1", "8.8.8.8", "93.184.216.34", "2606:4700:4700::1111", "2a00:1450:4001:80b::200e",
		"169.254.169.254", "100.100.100.200", "192.0.0.192", "fd00:ec2::254", "::1", "::ffff:10.0.0.1",
	} {
		all = append(all, netip.MustParseAddr(s))
	}
	return all
}

func lastOf(p netip.Prefix) netip.Addr {
	b := p.Masked().Addr().AsSlice()
	for bit := p.Bits(); bit < len(b)*8; bit++ {
		b[bit/8] |= 0x80 >> (bit % 8)
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}

package prometheus_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"example.com/trawl/pkg/crawl"
)

const (
	configFile    = "prometheus.yml"
	rulesFile     = "rules/trawl.yml"
	dashboardFile = "../grafana/dashboards/trawl.json"
	runbookFile   = "../RUNBOOK.md"
)

// rulesTestFiles are for promtool. The first test of the first is of a service that idles.
var rulesTestFiles = []string{"rules/trawl_test.yml", "rules/trawl_jobs_test.yml"}

// rule is one of a rules file: it records or alerts.
type rule struct {
	Record      string
	Alert       string
	Expr        string
	Labels      map[string]string
	Annotations map[string]string
}

func (r rule) name() string { return r.Record + r.Alert }

// readYAML reads a file into out.
func readYAML(t *testing.T, path string, out any) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(b, out); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

func rules(t *testing.T) []rule {
	t.Helper()
	var file struct{ Groups []struct{ Rules []rule } }
	readYAML(t, rulesFile, &file)
	var out []rule
	for _, g := range file.Groups {
		out = append(out, g.Rules...)
	}
	if len(out) == 0 {
		t.Fatal("there are no rules")
	}
	return out
}

// dashboardQueries are the expressions of the dashboard, by the title of their panel.
func dashboardQueries(t *testing.T) map[string]string {
	t.Helper()
	type panel struct {
		Title   string
		Targets []struct{ RefID, Expr string }
		Panels  []panel
	}
	var d struct {
		Panels      []panel
		Annotations struct{ List []struct{ Name, Expr string } }
	}
	b, err := os.ReadFile(dashboardFile)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &d); err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	var walk func(string, []panel)
	walk = func(in string, panels []panel) {
		for _, p := range panels {
			for _, q := range p.Targets {
				out[fmt.Sprintf("%s%s, %s", in, p.Title, q.RefID)] = strings.ReplaceAll(q.Expr, "$__rate_interval", "5m")
			}
			walk(p.Title+": ", p.Panels)
		}
	}
	walk("", d.Panels)
	for _, a := range d.Annotations.List {
		out["annotation "+a.Name] = a.Expr
	}
	if len(out) < 30 {
		t.Fatalf("%d expressions were found in the dashboard", len(out))
	}
	return out
}

// queried are the expressions that a template of an annotation asks Prometheus for.
var queried = regexp.MustCompile(`query "([^"]+)"`)

// expressions are all there are, by where they stand.
func expressions(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	for where, expr := range dashboardQueries(t) {
		out["dashboard, "+where] = expr
	}
	for _, r := range rules(t) {
		out["rule "+r.name()] = r.Expr
		for _, m := range queried.FindAllStringSubmatch(fmt.Sprint(r.Annotations), -1) {
			out[r.Alert+", query "+m[1]] = m[1]
		}
	}
	return out
}

// targetLabels are those that Prometheus gives to every series of a target.
var targetLabels = []string{"job", "instance"}

// meta are the metrics that Prometheus makes itself, with their labels.
var meta = names{
	"up":     {values: map[string]map[string]bool{}},
	"ALERTS": {values: map[string]map[string]bool{"alertname": {}, "alertstate": {"firing": true}, "severity": {}}},
}

// Whatever rules and dashboard ask for is exported by a service that runs: every metric, every
// label, and every value of a label that is named.
func TestNames(t *testing.T) {
	t.Parallel()
	known := gather(t)
	maps.Copy(known, meta)
	for _, r := range rules(t) {
		if r.Record == "" {
			continue
		}
		e, err := parse(r.Expr)
		if err != nil {
			t.Fatal(err)
		}
		values := map[string]map[string]bool{}
		for _, l := range e.grouped {
			values[l] = map[string]bool{}
		}
		known[r.Record] = &exported{values: values}
	}
	for where, text := range expressions(t) {
		e, err := parse(text)
		if err != nil {
			t.Errorf("%s: %v", where, err)
			continue
		}
		if len(e.selectors) == 0 {
			t.Errorf("%s: %q asks for nothing", where, text)
		}
		checkNames(t, where, e, known)
	}
}

// checkNames holds an expression to what is exported.
func checkNames(t *testing.T, where string, e expression, known names) {
	t.Helper()
	labels := slices.Clone(targetLabels)
	for _, s := range e.selectors {
		x := known[s.metric]
		if x == nil {
			t.Errorf("%s: nothing exports %s", where, s.metric)
			continue
		}
		labels = slices.AppendSeq(labels, maps.Keys(x.values))
		for _, m := range s.matchers {
			switch {
			case m.label == "job":
				// what prometheus.yml calls them, see TestJobs
			case !x.has(m.label):
				t.Errorf("%s: %s has no label %s", where, s.metric, m.label)
			default:
				checkValue(t, where, s.metric, m, x)
			}
		}
	}
	for _, l := range e.grouped {
		if !slices.Contains(labels, l) {
			t.Errorf("%s: none of its metrics has the label %s", where, l)
		}
	}
}

// unseen are values that no job of a test brings about, by label.
var unseen = map[string][]string{
	"code": {string(crawl.CodeOverloaded), string(crawl.CodeUnavailable)},
}

var plain = regexp.MustCompile(`^[a-z0-9_]+(\|[a-z0-9_]+)*$`)

// checkValue holds a value that is asked for to be one that the label can have. A regular
// expression that is more than a list must match something that was seen.
func checkValue(t *testing.T, where, metric string, m matcher, x *exported) {
	t.Helper()
	if m.label == "status" || m.label == "alertname" {
		return // numbers and names that need no list
	}
	if !m.regex() || plain.MatchString(m.value) {
		for v := range strings.SplitSeq(m.value, "|") {
			if !x.knows(m.label, v) && !slices.Contains(unseen[m.label], v) {
				t.Errorf("%s: %s is never %s in %s", where, m.label, v, metric)
			}
		}
		return
	}
	re, err := regexp.Compile("^(?:" + m.value + ")$")
	if err != nil {
		t.Errorf("%s: %v", where, err)
		return
	}
	for v := range x.values[m.label] {
		if re.MatchString(v) {
			return
		}
	}
	t.Errorf("%s: no %s of %s matches %s", where, m.label, metric, m.value)
}

// heading and sign are what GitHub makes an anchor of.
var (
	heading = regexp.MustCompile(`(?m)^#{1,6} +(.+?) *$`)
	sign    = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// anchors are those of a Markdown file.
func anchors(t *testing.T, path string) []string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, m := range heading.FindAllStringSubmatch(string(b), -1) {
		out = append(out, strings.ReplaceAll(sign.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-"))
	}
	return out
}

// Whoever is woken reads what is wrong, how much, what to do first, and where the rest is.
func TestAlerts(t *testing.T) {
	t.Parallel()
	sections := anchors(t, runbookFile)
	shown := regexp.MustCompile(`\$labels\.([a-z_]+)`)
	all := rules(t)
	for _, r := range all {
		if r.Alert == "" {
			continue
		}
		if s := r.Labels["severity"]; s != "page" && s != "ticket" || !strings.HasPrefix(r.Alert, "Trawl") {
			t.Errorf("%s: severity %q", r.Alert, s)
		}
		for _, a := range []string{"summary", "description", "action"} {
			if len(strings.Fields(r.Annotations[a])) < 3 {
				t.Errorf("%s: %s is %q", r.Alert, a, r.Annotations[a])
			}
		}
		if !regexp.MustCompile(`[0-9]|\$value`).MatchString(r.Annotations["description"]) {
			t.Errorf("%s: the description has no number", r.Alert)
		}
		path, anchor, _ := strings.Cut(r.Annotations["runbook"], "#")
		if path != "deployments/RUNBOOK.md" || !slices.Contains(sections, anchor) {
			t.Errorf("%s: the runbook has no section %q", r.Alert, r.Annotations["runbook"])
		}
		e, err := parse(resolve(r.Expr, all))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range shown.FindAllStringSubmatch(fmt.Sprint(r.Annotations), -1) {
			aggregated := len(e.grouped) > 0 || strings.Contains(r.Expr, "sum(")
			if !slices.Contains(e.grouped, m[1]) && (aggregated || !slices.Contains(targetLabels, m[1])) {
				t.Errorf("%s: shows %s, which its expression takes away", r.Alert, m[1])
			}
		}
	}
}

// resolve writes in place of what is recorded how it is recorded. The last are first: what is recorded may be
// made of what was recorded before it.
func resolve(expr string, all []rule) string {
	for _, r := range slices.Backward(all) {
		if r.Record != "" {
			expr = strings.ReplaceAll(expr, r.Record, "("+r.Expr+")")
		}
	}
	return expr
}

// ruleTest is one of a file for promtool.
type ruleTest struct {
	Name          string
	InputSeries   []struct{ Series string } `yaml:"input_series"`
	AlertRuleTest []struct {
		Alertname string
		ExpAlerts []any `yaml:"exp_alerts"`
	} `yaml:"alert_rule_test"`
	PromqlExprTest []struct {
		Expr       string
		ExpSamples []struct{ Labels string } `yaml:"exp_samples"`
	} `yaml:"promql_expr_test"`
}

// Each alert is made to fire by a test, and in the first test, the service that idles, every
// metric that it looks at is there and keeps it quiet.
func TestEveryAlertIsTested(t *testing.T) {
	t.Parallel()
	var tests []ruleTest
	for _, path := range rulesTestFiles {
		var file struct{ Tests []ruleTest }
		readYAML(t, path, &file)
		tests = append(tests, file.Tests...)
	}
	idle := map[string]bool{}
	for _, s := range tests[0].InputSeries {
		metric, _, _ := strings.Cut(s.Series, "{")
		idle[metric] = true
	}
	for _, q := range tests[0].PromqlExprTest {
		if q.Expr != `ALERTS{alertstate="firing"}` || len(q.ExpSamples) > 0 {
			t.Errorf("%s: expects %+v, and not that nothing fires", tests[0].Name, q)
		}
	}
	fires := map[string]bool{}
	for _, test := range tests {
		for _, q := range test.PromqlExprTest {
			for _, s := range q.ExpSamples {
				if m := regexp.MustCompile(`alertname="(\w+)"`).FindStringSubmatch(s.Labels); m != nil {
					fires[m[1]] = true
				}
			}
		}
	}
	all := rules(t)
	for _, r := range all {
		if r.Alert == "" {
			continue
		}
		if !fires[r.Alert] {
			t.Errorf("%s: no test makes it fire", r.Alert)
		}
		e, err := parse(resolve(r.Expr, all))
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range e.selectors {
			if !idle[s.metric] {
				t.Errorf("%s: the service that idles has no %s, so that it proves nothing", r.Alert, s.metric)
			}
		}
	}
}

// What rules and dashboard take for the processes of Trawl are the jobs of prometheus.yml, and
// the files that have tests in them are not loaded as rules.
func TestJobs(t *testing.T) {
	t.Parallel()
	var config struct {
		RuleFiles     []string `yaml:"rule_files"`
		ScrapeConfigs []struct {
			JobName string `yaml:"job_name"`
		} `yaml:"scrape_configs"`
	}
	readYAML(t, configFile, &config)
	if !slices.Equal(config.RuleFiles, []string{rulesFile}) {
		t.Errorf("rule_files are %q, want %s alone", config.RuleFiles, rulesFile)
	}
	var jobs []string
	for _, s := range config.ScrapeConfigs {
		jobs = append(jobs, s.JobName)
	}
	for where, text := range expressions(t) {
		e, err := parse(text)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range e.selectors {
			for _, m := range s.matchers {
				if m.label != "job" {
					continue
				}
				re, err := regexp.Compile("^(?:" + m.value + ")$")
				if err != nil || !m.regex() || !slices.ContainsFunc(jobs, re.MatchString) {
					t.Errorf("%s: no job of %q is %s (%v)", where, jobs, m.value, err)
				}
			}
		}
	}
}

// promtool runs Prometheus' own checks. Without it the test is skipped, unless
// TRAWL_REQUIRE_PROMTOOL=1.
func promtool(t *testing.T, arguments ...string) {
	t.Helper()
	path, err := exec.LookPath("promtool")
	if err != nil {
		if os.Getenv("TRAWL_REQUIRE_PROMTOOL") == "1" {
			t.Fatal("TRAWL_REQUIRE_PROMTOOL is 1, and promtool is not on PATH: install prometheus")
		}
		t.Skip("promtool is not on PATH: install prometheus to check the rules")
	}
	out, err := exec.CommandContext(t.Context(), path, arguments...).CombinedOutput()
	if err != nil {
		t.Errorf("promtool %s: %v\n%s", strings.Join(arguments, " "), err, out)
	}
}

func TestPromtool(t *testing.T) {
	t.Parallel()
	for name, arguments := range map[string][]string{
		"config": {"check", "config", configFile},
		"rules":  {"check", "rules", rulesFile},
		"tests":  append([]string{"test", "rules"}, rulesTestFiles...),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			promtool(t, arguments...)
		})
	}
}

// Every expression of the dashboard is one that Prometheus takes.
func TestPromtoolDashboard(t *testing.T) {
	t.Parallel()
	type recording struct {
		Record string            `json:"record"`
		Expr   string            `json:"expr"`
		Labels map[string]string `json:"labels"`
	}
	var recordings []recording
	queries := dashboardQueries(t)
	for _, where := range slices.Sorted(maps.Keys(queries)) {
		recordings = append(recordings, recording{"dashboard:panel", queries[where], map[string]string{"panel": where}})
	}
	// JSON is YAML.
	b, err := json.Marshal(map[string]any{"groups": []any{map[string]any{"name": "dashboard", "rules": recordings}}})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "dashboard.yml")
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	promtool(t, "check", "rules", path)
}

// What the dashboard says of errors while no request comes, and when no API is there to be asked: nothing, not
// that all is well.
func TestErrorsOfNobody(t *testing.T) {
	t.Parallel()
	const panel = "API errors, A"
	expr, ok := dashboardQueries(t)[panel]
	if !ok {
		t.Fatalf("the dashboard has no %q", panel)
	}
	type object = map[string]any
	value := func(at string, values ...float64) object {
		var samples []object
		for _, v := range values {
			samples = append(samples, object{"labels": "{}", "value": v})
		}
		return object{"expr": expr, "eval_time": at, "exp_samples": samples}
	}
	series := func(route, status, values string) object {
		return object{
			"series": fmt.Sprintf(`trawl_http_requests_total{job="trawl-api", route=%q, status=%q}`, route, status),
			"values": values,
		}
	}
	b, err := json.Marshal(object{"evaluation_interval": "1m", "tests": []object{{
		"interval": "1m",
		"input_series": []object{
			series("/metrics", "200", "0+4x60"),
			series("/v1/jobs", "200", "0x20 0+3x20 60x20"),
			series("/v1/jobs", "503", "0x20 0+1x20 20x20"),
		},
		"promql_expr_test": []object{value("15m", 0), value("40m", .25), value("55m", 0), value("80m")},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "errors.yml")
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	promtool(t, "test", "rules", path)
}

// The files for Grafana's provisioning parse, and name a folder for the dashboards.
func TestProvisioning(t *testing.T) {
	t.Parallel()
	for _, path := range []string{
		"../grafana/provisioning/datasources/prometheus.yml", "../grafana/provisioning/dashboards/trawl.yml",
	} {
		var file struct {
			APIVersion  int `yaml:"apiVersion"`
			Datasources []struct{ Type, URL string }
			Providers   []struct {
				Type    string
				Options struct{ Path string }
			}
		}
		readYAML(t, path, &file)
		if file.APIVersion != 1 || len(file.Datasources)+len(file.Providers) != 1 {
			t.Errorf("%s: %+v, want one datasource or provider", path, file)
		}
		for _, d := range file.Datasources {
			if d.Type != "prometheus" || d.URL == "" {
				t.Errorf("%s: %+v", path, d)
			}
		}
		for _, p := range file.Providers {
			if p.Type != "file" || p.Options.Path == "" {
				t.Errorf("%s: %+v", path, p)
			}
		}
	}
	if _, err := os.Stat(dashboardFile); errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s is not there", dashboardFile)
	}
}

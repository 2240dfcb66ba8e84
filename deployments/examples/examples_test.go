package examples

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.com/trawl/deployments/allinone"
	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/crawltest"
	"example.com/trawl/pkg/netguard"
)

func TestMain(m *testing.M) { crawltest.Main(m) }

// within bounds whatever takes seconds on a calm machine.
const within = 2 * time.Minute

// service is all of Trawl, for one tenant, and the site of an example.
type service struct {
	t              *testing.T
	api, key, site string
}

// start runs the site of an example as its README does, as a process, and all of Trawl in this one. Trawl may crawl
// that site and nothing else.
func start(t *testing.T, example string) *service {
	t.Helper()
	p := crawltest.Run(t, "example.com/trawl/deployments/examples/"+example, nil, "--listen", "127.0.0.1:0")
	address := p.WaitFor(within, `(?m)at http://(\S+)/$`)[1]
	policy, err := netguard.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	sources, err := crawl.ParseSources("http://" + address + "/")
	if err != nil {
		t.Fatal(err)
	}
	s := &service{t: t, key: crawltest.Random(), site: "http://" + address}
	trawl, err := allinone.New(allinone.Options{
		Keys: map[string][]string{"a": {s.key}}, Sources: sources, Private: policy, HostConcurrency: 2,
		UserAgent: "TrawlTest/1", Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := trawl.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := trawl.Stop(ctx); err != nil {
			t.Errorf("the process did not stop: %v", err)
		}
	})
	s.api = trawl.URL()
	return s
}

// call sends a request, with a body of JSON if it has one, and returns the body of the answer.
func (s *service) call(method, url, body string, want int) []byte {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+s.key)
	r.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	if res.StatusCode != want {
		s.t.Fatalf("%s %s is answered with %s, want %d: %s", method, url, res.Status, want, answer)
	}
	return answer
}

// get reads what a path of the API answers into a value.
func (s *service) get(path string, into any) {
	s.t.Helper()
	if answer := s.call(http.MethodGet, s.api+path, "", http.StatusOK); json.Unmarshal(answer, into) != nil {
		s.t.Fatalf("%s is answered with %s", path, answer)
	}
}

// job is what the tests look at of a status.
type job struct {
	ID            string           `json:"job_id"`
	State         string           `json:"state"`
	Total         int64            `json:"total"`
	Accepted      int64            `json:"accepted"`
	FailedByType  map[string]int64 `json:"failed_by_type"`
	report        `json:"report"`
	RefusedReason map[string]int64 `json:"refused_by_reason"`
}

type report struct {
	ListPages    int64 `json:"list_pages"`
	Discovered   int64 `json:"discovered"`
	Created      int64 `json:"created"`
	Updated      int64 `json:"updated"`
	Unchanged    int64 `json:"unchanged"`
	NotCollected int64 `json:"not_collected"`
	Missing      int64 `json:"missing"`
}

// run submits a job and waits for its end.
func (s *service) run(spec string) job {
	s.t.Helper()
	var j job
	if answer := s.call(http.MethodPost, s.api+"/v1/jobs", spec, http.StatusAccepted); json.Unmarshal(answer, &j) != nil {
		s.t.Fatalf("a submission is answered with %s", answer)
	}
	id := j.ID
	crawltest.Eventually(s.t, within, "the job has ended", func() bool {
		j = job{}
		s.get("/v1/jobs/"+id, &j)
		return j.State != "queued" && j.State != "running"
	})
	return j
}

// record is what the tests look at of a record of a job.
type record struct {
	SourceURL string         `json:"source_url"`
	Status    int            `json:"status"`
	Change    *string        `json:"change"`
	Fields    map[string]any `json:"fields"`
}

// result returns the records of an ended job by the path of the page.
func (s *service) result(id string) map[string]record {
	s.t.Helper()
	out := map[string]record{}
	answer := s.call(http.MethodGet, s.api+"/v1/jobs/"+id+"/result?format=ndjson", "", http.StatusOK)
	for line := range bytes.Lines(answer) {
		var r record
		if err := json.Unmarshal(line, &r); err != nil {
			s.t.Fatalf("a line of the result is %s: %v", line, err)
		}
		out[strings.TrimPrefix(r.SourceURL, s.site)] = r
	}
	return out
}

// script runs run.sh of an example, and returns what it writes.
func (s *service) script(example string) string {
	s.t.Helper()
	for _, program := range []string{"sh", "curl"} {
		if _, err := exec.LookPath(program); err != nil {
			if os.Getenv("TRAWL_REQUIRE_REDIS") == "1" {
				s.t.Fatal(err)
			}
			s.t.Skip(err)
		}
	}
	ctx, cancel := context.WithTimeout(s.t.Context(), within)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", filepath.Join(example, "run.sh"))
	cmd.Env = append(os.Environ(), "API="+s.api, "KEY="+s.key, "SITE="+s.site, "no_proxy=*")
	cmd.WaitDelay = time.Second // of a curl that outlives its shell
	out, err := cmd.CombinedOutput()
	if err != nil {
		s.t.Fatalf("run.sh: %v. It wrote:\n%s", err, out)
	}
	return string(out)
}

var ids = regexp.MustCompile(`\bj[a-z2-7]{26}\b`)

// comparable takes out of what a script writes what differs from run to run: ids, and lines of "...".
func comparable(text string) string {
	var b strings.Builder
	for line := range strings.Lines(ids.ReplaceAllString(text, "j…")) {
		if !strings.HasPrefix(line, "...") {
			b.WriteString(line)
		}
	}
	return strings.TrimSpace(b.String())
}

// promised is the block of text of an example's README: what run.sh prints.
func promised(t *testing.T, example string) string {
	t.Helper()
	f, err := os.Open(filepath.Join(example, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var b strings.Builder
	inside := false
	for lines := bufio.NewScanner(f); lines.Scan(); {
		switch line := lines.Text(); {
		case line == "```text":
			inside = true
		case line == "```":
			inside = false
		case inside:
			b.WriteString(line + "\n")
		}
	}
	return comparable(b.String())
}

// TestScripts runs run.sh of each example and compares what it prints with what README says.
func TestScripts(t *testing.T) {
	t.Parallel()
	for _, example := range []string{"titles", "jobradar"} {
		t.Run(example, func(t *testing.T) {
			t.Parallel()
			got := comparable(start(t, example).script(example))
			if d := cmp.Diff(promised(t, example), got); d != "" {
				t.Errorf("promised by README (-) and printed (+):\n%s", d)
			}
		})
	}
}

// TestEveryExampleHasWhatItNeeds: the tests above, and .ci/newcomer, go by these names.
func TestEveryExampleHasWhatItNeeds(t *testing.T) {
	t.Parallel()
	mains, err := filepath.Glob(filepath.Join("*", "main.go"))
	if err != nil || len(mains) != 2 {
		t.Fatalf("the examples are %v, %v", mains, err)
	}
	for _, main := range mains {
		folder := filepath.Dir(main)
		for _, name := range []string{"README.md", "run.sh", "main.go"} {
			if _, err := os.Stat(filepath.Join(folder, name)); errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s has no %s", folder, name)
			}
		}
	}
}

// TestTitles: a page is collected with its title, or fails for want of one.
func TestTitles(t *testing.T) {
	t.Parallel()
	s := start(t, "titles")
	j := s.run(fmt.Sprintf(`{"urls": ["%[1]s/one.html", "%[1]s/two.html", "%[1]s/untitled.html"],
		"fields": {"title": {"selector": "title", "required": true}}}`, s.site))
	if j.State != "completed_with_errors" || j.Total != 3 || j.Accepted != 2 {
		t.Errorf("the job ended as %+v", j)
	}
	if d := cmp.Diff(map[string]int64{"missing_field": 1}, j.FailedByType); d != "" {
		t.Errorf("failed:\n%s", d)
	}
	titles := map[string]any{}
	for path, r := range s.result(j.ID) {
		titles[path] = r.Fields["title"]
	}
	want := map[string]any{"/one.html": "The first page", "/two.html": "第二页 – the second page"}
	if d := cmp.Diff(want, titles); d != "" {
		t.Errorf("titles:\n%s", d)
	}
	var errs struct {
		Items []struct {
			SourceURL string `json:"source_url"`
			ErrorType string `json:"error_type"`
			Message   string `json:"message"`
		} `json:"items"`
	}
	s.get("/v1/jobs/"+j.ID+"/errors", &errs)
	if len(errs.Items) != 1 || errs.Items[0].ErrorType != "missing_field" ||
		errs.Items[0].SourceURL != s.site+"/untitled.html" || !strings.Contains(errs.Items[0].Message, "fields.title") {
		t.Errorf("errors: %+v", errs)
	}
}

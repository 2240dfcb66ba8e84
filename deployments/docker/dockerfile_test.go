package docker_test

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"example.com/trawl/pkg/crawltest/deploytest"
)

// stage is one of a Dockerfile, with what it has from those that it is built on.
type stage struct {
	from    string
	args    map[string]string // build arguments and their defaults
	env     map[string]string
	run     []string // shell commands, without the mounts
	copies  [][2]string
	user    string
	expose  string
	stop    string
	probe   []string // the health check
	command []string // entry point and arguments
}

// instruction is one of a Dockerfile; comments are gone and lines joined.
var instruction = regexp.MustCompile(`(?m)^([A-Z]+)[ \t]+(.*)$`)

// stages reads the Dockerfile. It knows the instructions that ours has and no others: the real
// parser is BuildKit's, which .ci/deployments runs.
func stages(t *testing.T) (map[string]*stage, map[string]string) {
	t.Helper()
	text, err := os.ReadFile("Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	joined := regexp.MustCompile(`(?m)^#.*\n`).ReplaceAllString(string(text), "")
	joined = strings.ReplaceAll(joined, "\\\n", " ")
	global, all := map[string]string{}, map[string]*stage{}
	var s *stage
	for _, m := range instruction.FindAllStringSubmatch(joined, -1) {
		name, rest := m[1], strings.TrimSpace(m[2])
		if name == "FROM" {
			words := strings.Fields(rest)
			n := len(words)
			s = &stage{from: words[n-3], args: map[string]string{}, env: map[string]string{}}
			if base, ok := all[s.from]; ok {
				s.from, s.copies, s.user, s.stop = base.from, append(s.copies, base.copies...), base.user, base.stop
			}
			all[words[n-1]] = s
			continue
		}
		if s == nil {
			assign(global, name, rest)
			continue
		}
		if err := s.take(name, rest); err != nil {
			t.Fatal(err)
		}
	}
	return all, global
}

func (s *stage) take(name, rest string) error {
	switch name {
	case "ARG":
		assign(s.args, name, rest)
	case "ENV":
		assign(s.env, name, rest)
	case "RUN":
		s.run = append(s.run, regexp.MustCompile(`--mount=\S+\s+`).ReplaceAllString(rest, ""))
	case "COPY":
		words := strings.Fields(rest)
		if len(words) != 3 || words[0] != "--from=build" {
			return fmt.Errorf("COPY %s: only what the stage build made is copied", rest)
		}
		s.copies = append(s.copies, [2]string{words[1], words[2]})
	case "USER":
		s.user = rest
	case "EXPOSE":
		s.expose = rest
	case "STOPSIGNAL":
		s.stop = rest
	case "HEALTHCHECK":
		_, command, _ := strings.Cut(rest, "CMD ")
		return json.Unmarshal([]byte(strings.TrimSpace(command)), &s.probe)
	case "ENTRYPOINT", "CMD":
		var words []string
		if err := json.Unmarshal([]byte(rest), &words); err != nil {
			return fmt.Errorf("%s %s: there is no shell in the image: %w", name, rest, err)
		}
		s.command = append(s.command, words...)
	case "WORKDIR", "LABEL":
	default:
		return fmt.Errorf("these tests do not know %s: teach it to them", name)
	}
	return nil
}

func assign(to map[string]string, _, rest string) {
	for word := range strings.FieldsSeq(rest) {
		name, value, _ := strings.Cut(word, "=")
		to[name] = value
	}
}

// TestImagesSay holds what the images say of themselves to what the programs do.
func TestImagesSay(t *testing.T) {
	t.Parallel()
	all, _ := stages(t)
	for name, process := range map[string]deploytest.Process{
		"api": deploytest.API, "worker": deploytest.Worker, "trawl": deploytest.API,
	} {
		s := all[name]
		if s == nil {
			t.Fatalf("the Dockerfile has no target %s", name)
		}
		env := map[string]string{
			"TRAWL_ALLOWED_SOURCES": "*", "TRAWL_API_KEYS": "acme:0123456789abcdef",
		}
		for k, v := range s.env {
			env[k] = v
		}
		settings, err := deploytest.Load(t, process, env, func(string) bool { return false })
		if err != nil {
			t.Errorf("%s: the settings of the image: %v", name, err)
		}
		if settings.Listen != ":"+s.expose {
			t.Errorf("%s: listens on %q and exposes %q", name, settings.Listen, s.expose)
		}
		if want := "http://127.0.0.1:" + s.expose + "/readyz"; len(s.probe) != 2 || s.probe[1] != want {
			t.Errorf("%s: the health check is %q, not of %s", name, s.probe, want)
		}
		if s.from != "scratch" || s.user != "65532:65532" || s.stop != "SIGTERM" {
			t.Errorf("%s: from %q, as %q, stopped by %q", name, s.from, s.user, s.stop)
		}
	}
}

// TestGoVersion: images are built with the Go that .github/SECURITY.md asks for, whose standard library
// .ci/run compares with the known faults.
func TestGoVersion(t *testing.T) {
	t.Parallel()
	_, global := stages(t)
	for file, form := range map[string]string{
		"../../.github/SECURITY.md": `GOTOOLCHAIN=go([0-9.]+) `,
		"../../.ci/run":             `GOTOOLCHAIN=go([0-9.]+)`,
	} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		m := regexp.MustCompile(form).FindSubmatch(text)
		if m == nil || string(m[1]) != global["GO_VERSION"] {
			t.Errorf("the Dockerfile takes Go %s, %s says %q", global["GO_VERSION"], file, m)
		}
	}
}

package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// silent starts a program that writes no figures.
func silent(t *testing.T, name string, args ...string) func(context.Context) (*child, error) {
	t.Helper()
	return func(ctx context.Context) (*child, error) {
		cmd := exec.CommandContext(ctx, name, args...)
		out, err := cmd.StdoutPipe()
		if err != nil {
			return nil, err
		}
		dieWithUs(cmd)
		return &child{name: name, cmd: cmd, out: bufio.NewReader(out)}, cmd.Start()
	}
}

// programs is a PATH on which these names are those programs, whatever is on that of the tests.
func programs(of map[string]string) func(string) (string, error) {
	return func(name string) (string, error) {
		if program, ok := of[name]; ok {
			return exec.LookPath(program)
		}
		return "", fmt.Errorf("%s: %w", name, exec.ErrNotFound)
	}
}

// Where spider-rs cannot be had a sentence says why, and nothing is left that looks installed.
func TestSpiderThatCannotBeHad(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		path map[string]string
		want string
	}{
		{"no node", map[string]string{"npm": "/bin/true"}, "there is no node on PATH"},
		{"no npm", map[string]string{"node": "/bin/true"}, "there is no npm on PATH"},
		{"npm fails", map[string]string{"node": "/bin/true", "npm": "/bin/false"}, "npm did not install it"},
		{"node does not load it", map[string]string{"node": "/bin/false", "npm": "/bin/true"}, "node does not load it"},
	} {
		cache := t.TempDir()
		s, why := findSpider(t.Context(), cache, programs(tt.path))
		if s != nil || !strings.Contains(why, tt.want) || !strings.HasSuffix(why, ".") || strings.Contains(why, "\n") {
			t.Errorf("%s: %v, %q", tt.name, s, why)
		}
		if left, err := filepath.Glob(filepath.Join(cache, "trawl-bench", "incomplete-*")); len(left) > 0 || err != nil {
			t.Errorf("%s: left are %v, %v", tt.name, left, err)
		}
	}
}

// What was installed once is not asked of npm again, and the script is that of this program.
func TestSpiderIsInstalledOnce(t *testing.T) {
	t.Parallel()
	cache := t.TempDir()
	if s, why := findSpider(t.Context(), cache, programs(map[string]string{"node": "/bin/true", "npm": "/bin/true"})); s == nil {
		t.Fatal(why)
	}
	without := programs(map[string]string{"node": "/bin/true"})
	s, why := findSpider(t.Context(), cache, without)
	if s == nil {
		t.Fatal(why)
	}
	if err := os.WriteFile(s.script, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	if s, why = findSpider(t.Context(), cache, without); s == nil {
		t.Fatal(why)
	}
	if now, err := os.ReadFile(s.script); err != nil || !bytes.Equal(now, spiderScript) {
		t.Errorf("the script is %q, %v", now, err)
	}
}

// The row of spider-rs is absent, with the reason below, where it cannot be had.
func TestPagesWithoutSpider(t *testing.T) {
	t.Parallel()
	p := madeUp()
	p.notes = []string{"No node here."}
	f := p.findings(options{Rounds: 3})
	for _, row := range f.Tables[0].Rows {
		if strings.HasPrefix(row.Name, spiderRow) {
			t.Errorf("there is a row %q", row.Name)
		}
	}
	if notes := strings.Join(f.Tables[0].Notes, "\n"); !strings.Contains(notes, "No node here.") {
		t.Errorf("the notes are %q", notes)
	}
	for _, b := range f.Bars {
		if strings.Contains(b.Figure, spiderRow) {
			t.Errorf("there is a bar %+v", b)
		}
	}
}

// spider-rs, where it is installed, crawls the whole site.
func TestSpider(t *testing.T) {
	t.Parallel()
	rs, why := findSpider(t.Context(), spiderCache(), func(name string) (string, error) {
		if name == "npm" {
			return "", exec.ErrNotFound // a test asks no registry
		}
		return exec.LookPath(name)
	})
	if rs == nil {
		t.Skip(why)
	}
	r, s := smallSite(t)
	for _, c := range rs.contenders(s, r.o.Pages) {
		took, err := c.crawl(t.Context())
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		told := c.name == spiderWithTitles
		if took.pages != 70 || took.fetches < 70 || took.Seconds <= 0 || took.CPU <= 0 || took.PeakMiB < 1 || (took.Told > 0) != told {
			t.Errorf("%s: %+v", c.name, took)
		}
	}
}

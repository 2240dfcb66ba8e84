package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"example.com/trawl/pkg/crawltest"
)

// scriptSite has five pages that are found, one that is not, one that redirects to another,
// and a title that would set that of the terminal. Apart from them it has a shop.
var scriptSite = []byte(`
-- index.html --
<title>Start</title><a href="/a">a</a> <a href="/b">b</a> <a href="/missing">m</a> <a href="/old">o</a>
<a href="/evil">e</a> <a href="https://elsewhere.example/">x</a>
-- a --
<title>Page A</title><a href="/">up</a>
-- b --
<title>Page B</title><a href="/deep">d</a>
-- deep --
<title>Deep</title>
-- evil --
<title>&#27;]0;owned&#7; and &#155;31m &#8238;txt</title>
-- old --
status: 302
header: Location: /a

-- shop --
<title>Shop</title><a href="/shop/chair">c</a> <a href="/shop/table">t</a> <a href="/shop/about">a</a>
<ul><li><b>one</b></li><li><b>two</b></li><li>none</li></ul>
-- shop/chair --
<title>Chair</title><h1>Chair</h1><i class=price>1.234,50 €</i><b class=wood>oak</b><a href="/shop">all</a>
-- shop/table --
<title>Table</title><h1>=Table</h1><i class=price>99 €</i><b class=wood>oak</b><b class=wood>ash</b><a href="/shop">all</a>
-- shop/about --
<title>About</title><p>Nothing to sell &#27;[2J here.</p><a href="/shop">all</a>
-- away --
status: 302
header: Location: http://127.0.0.2:1/

`)

// hostile are the characters that must not reach a terminal, and what a program shows when
// it forgot to speak to a person.
var (
	hostile = regexp.MustCompile("[\x00-\x08\x0b-\x1f\x7f]|\u009b|\u202e")
	inside  = regexp.MustCompile(`goroutine \d|panic|0x[0-9a-f]{6}|&\{|%!|\*errors\.|<nil>`)
)

// serveRobots is a site with a robots.txt, whose pages are called by what they are asked with.
func serveRobots(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/robots.txt" {
		_, _ = io.WriteString(w, "User-agent: *\nDisallow: /private\n")
		return
	}
	w.Header().Set("Content-Type", "text/html")
	_, _ = fmt.Fprintf(w, "<title>%s for %s</title>",
		html.EscapeString(r.Header.Get("X-Token")), html.EscapeString(r.UserAgent()))
}

func TestScripts(t *testing.T) {
	t.Parallel()
	bin := crawltest.Build(t, command)
	site := crawltest.NewSite(t, scriptSite)
	closed := crawltest.NewHandlerSite(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "not for you", http.StatusForbidden)
	}))
	robots := crawltest.NewHandlerSite(t, http.HandlerFunc(serveRobots))
	links := crawltest.NewHandlerSite(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = fmt.Fprintf(w, `<title>Links</title><a href="%s/a">a</a>`, site.URL)
	}))
	server := startServer(t, site.URL+"/", closed.URL+"/")
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		Setup: func(e *testscript.Env) error {
			e.Setenv("PATH", filepath.Dir(bin)+string(filepath.ListSeparator)+e.Getenv("PATH"))
			e.Setenv("SITE", site.URL)
			e.Setenv("CLOSED", closed.URL)
			e.Setenv("LINKS", links.URL)
			e.Setenv("ROBOTS", robots.URL)
			e.Setenv("SERVER", server)
			e.Setenv("KEY", testKey)
			// Where nothing listens: the port was free a moment ago, and is not one to listen on.
			e.Setenv("NOBODY", "http://127.0.0.1:1")
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits": cmdExits, "ndjson": cmdNDJSON, "capture": cmdCapture, "write": cmdWrite,
		},
		Condition: func(cond string) (bool, error) {
			if path, ok := strings.CutPrefix(cond, "file:"); ok {
				_, err := os.Stat(path)
				return err == nil, nil
			}
			return false, errors.New("there is no such condition")
		},
	})
}

// cmdExits runs a program and wants an exit code: exits CODE PROGRAM ARG… Whatever it
// writes for a person must be fit for one.
func cmdExits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE PROGRAM ARG…")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		exit, ok := errors.AsType[*exec.ExitError](err)
		if !ok {
			ts.Fatalf("%v", err)
		}
		got = exit.ExitCode()
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
	stderr := ts.ReadFile("stderr")
	for _, re := range []*regexp.Regexp{hostile, inside} {
		if m := re.FindString(stderr); m != "" {
			ts.Fatalf("stderr holds %q", m)
		}
	}
}

// cmdNDJSON wants a file of so many lines, each a JSON object with a certain member:
// ndjson FILE COUNT MEMBER.
func cmdNDJSON(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: ndjson FILE COUNT MEMBER")
	}
	want, err := strconv.Atoi(args[1])
	ts.Check(err)
	text, n := ts.ReadFile(args[0]), 0
	if text != "" && !strings.HasSuffix(text, "\n") {
		ts.Fatalf("the last line has no end")
	}
	for line := range strings.Lines(text) {
		var object map[string]any
		if err := json.Unmarshal([]byte(line), &object); err != nil {
			ts.Fatalf("line %d: %v", n+1, err)
		}
		if _, ok := object[args[2]]; !ok {
			ts.Fatalf("line %d has no %s", n+1, args[2])
		}
		n++
	}
	if n != want {
		ts.Fatalf("%d lines, want %d", n, want)
	}
}

// cmdWrite writes a line into a file: write FILE TEXT.
func cmdWrite(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: write FILE TEXT")
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(args[1]+"\n"), 0o600))
}

// cmdCapture sets a variable to what a group matched: capture NAME FILE REGEXP.
func cmdCapture(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: capture NAME FILE REGEXP")
	}
	match := regexp.MustCompile(args[2]).FindStringSubmatch(ts.ReadFile(args[1]))
	if len(match) < 2 {
		ts.Fatalf("nothing like %s", args[2])
	}
	ts.Setenv(args[0], match[1])
}

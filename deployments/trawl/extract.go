package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"unicode/utf8"

	"example.com/trawl/pkg/client"
	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/obs"
	"example.com/trawl/pkg/redisconn"
)

// extractWithin is longer than the half minute that the service takes at most for a URL.
const extractWithin = 2 * callWithin

// maxPageFile bounds a file of HTML in bytes; the service takes less.
const maxPageFile = 64 << 20

// extractCommand shows what a page gives.
type extractCommand struct {
	Page    string `arg:"" name:"page" help:"A URL, a file of HTML, or - for standard input."`
	BaseURL string `name:"base-url" placeholder:"URL" help:"What the links of a file are relative to. Without it they are left out."`

	contentFlags
	IgnoreRobots bool     `name:"ignore-robots" help:"For your own sites: read the URL although its robots.txt asks not to."`
	Headers      []string `name:"header" sep:"none" placeholder:"'NAME: VALUE'" help:"Sent with the request for the URL. May be repeated."`
	UserAgent    string   `name:"user-agent" placeholder:"TEXT" help:"What the crawler calls itself."`

	Server serverFlags `embed:""`
}

// Help returns examples for the help of the command.
func (*extractCommand) Help() string {
	return `What the page gives is written to standard output as JSON.

Examples:

    trawl extract https://shop.example.org/chair --fields fields.json
    trawl extract page.html --base-url https://shop.example.org/ --keep markdown --main-content
    curl -s https://shop.example.org/chair | trawl extract - --fields fields.json

` + fieldsHelp + `

With --url or TRAWL_URL a server does it, else this process. The exit code is 0 when the page
has all that is required, 1 when it lacks something, 2 when it cannot be read.`
}

// Run executes the command.
func (c *extractCommand) Run(ctx context.Context, s *session) error {
	var urls []crawl.URL
	if c.isURL() {
		u, err := parseURLs([]string{c.Page})
		if err != nil {
			return err
		}
		urls = u
	}
	if err := errors.Join(c.check(), c.load()); err != nil {
		return err
	}
	ctx, cancel := s.interruptible(ctx)
	defer cancel()
	what, err := c.extraction(ctx, s)
	if err != nil {
		return err
	}
	srv, stop, err := c.service(ctx, s, urls)
	if err != nil {
		return err
	}
	defer stop()
	at := s.callOf(srv, "")
	at.fields, at.inputs = c.Fields, []string{shownURL(c.Page)}
	bounded, end := context.WithTimeout(ctx, extractWithin)
	defer end()
	found, err := srv.Extract(bounded, what)
	if err != nil {
		return at.explain(err)
	}
	return c.tell(s, srv, found)
}

// isURL reports whether the page is to be fetched: what is no URL is the name of a file.
func (c *extractCommand) isURL() bool { return strings.Contains(c.Page, "://") }

// check finds what is wrong with the flags.
func (c *extractCommand) check() error {
	_, faults := parseHeaders(c.Headers)
	if c.Fields == "" && len(c.Keep) == 0 {
		faults = append(faults, "Say what to take out of the page: --fields FILE, --keep FORMAT, or both.")
	}
	for _, f := range []struct {
		name  string
		given bool
		url   bool // whether it is for a URL
	}{
		{"--base-url", c.BaseURL != "", false},
		{"--ignore-robots", c.IgnoreRobots, true},
		{"--header", len(c.Headers) > 0, true},
		{"--user-agent", c.UserAgent != "", true},
	} {
		switch {
		case f.given && f.url && !c.isURL():
			faults = append(faults, f.name+": it is for a URL, and "+c.Page+" is none.")
		case f.given && !f.url && c.isURL():
			faults = append(faults, f.name+": it is for a file; what a URL leads to is known.")
		}
	}
	if faults != nil {
		return badUsage(faults...)
	}
	return nil
}

// extraction returns what is asked of the service.
func (c *extractCommand) extraction(ctx context.Context, s *session) (client.Extract, error) {
	what := client.Extract{
		Fields: c.taking.Fields, Items: c.taking.Items, Formats: c.formats(), MainContent: c.MainContent,
		BaseURL: c.BaseURL, UserAgent: c.UserAgent,
	}
	if !c.isURL() {
		var err error
		what.HTML, err = readPage(ctx, s, c.Page)
		return what, err
	}
	what.URL = c.Page
	what.Headers, _ = parseHeaders(c.Headers)
	if c.IgnoreRobots {
		what.RespectRobots = new(false)
	}
	return what, nil
}

// readPage reads a file of HTML, or standard input, for which an interrupt does not wait.
func readPage(ctx context.Context, s *session, name string) (string, error) {
	type page struct {
		text []byte
		err  error
	}
	read := make(chan page, 1)
	go func() {
		text, err := pageOf(s, name)
		read <- page{text, err}
	}()
	shown := name
	if name == "-" {
		shown = "standard input"
	}
	select {
	case <-ctx.Done():
		return "", ctx.Err() // what is read later ends with the process
	case got := <-read:
		switch {
		case errors.Is(got.err, os.ErrNotExist) && !strings.ContainsAny(name, `/\`):
			return "", failuref("There is no file %s; a URL is written like https://example.org/.", name)
		case got.err != nil:
			return "", failuref("The page cannot be read: %w", got.err)
		case len(got.text) > maxPageFile:
			return "", failuref("%s has more than %d MiB: that is no page.", shown, maxPageFile>>20)
		case len(bytes.TrimSpace(got.text)) == 0:
			return "", failuref("There is no page in %s: it is empty.", shown)
		case !utf8.Valid(got.text):
			return "", failuref("%s is no UTF-8 text. Convert it (iconv -f GBK -t UTF-8), or give the URL: "+
				"of that the charset is found out.", shown)
		}
		return string(got.text), nil
	}
}

func pageOf(s *session, name string) ([]byte, error) {
	in := s.stdin
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		defer func() { _ = file.Close() }() // opened for reading: nothing is lost
		in = file
	}
	if in == nil {
		return nil, nil
	}
	return io.ReadAll(io.LimitReader(in, maxPageFile+1))
}

// service returns the server that is named, or one inside this process.
func (c *extractCommand) service(ctx context.Context, s *session, urls []crawl.URL) (*server, func(), error) {
	if c.Server.named(s) != "" {
		srv, err := c.Server.connect(s)
		if err != nil {
			return nil, nil, err
		}
		return srv, srv.CloseIdleConnections, nil
	}
	logger, err := obs.Install(io.Discard, obs.FormatText, slog.LevelInfo)
	if err != nil {
		return nil, nil, err
	}
	redisconn.SetLogger(logger)
	o := localOptions{territory: territoryOf(ctx, urls, client.ScopeHost), delay: hostDelay, logger: logger}
	if o.local {
		o.delay = 0
	}
	// It outlives an interrupt, so that it is stopped in order.
	srv, stop, err := startLocal(context.WithoutCancel(ctx), s, o)
	if err != nil {
		return nil, nil, err
	}
	return srv, func() {
		srv.CloseIdleConnections()
		stop()
	}, nil
}

// tell writes what the page gives, and says what it lacks.
func (c *extractCommand) tell(s *session, srv *server, found *client.Extraction) error {
	switch {
	case found.Pending && srv.url != "":
		s.sayf("The page is still being fetched: `%s results %s` has it in a while.", s.self, found.JobID)
		return exitError(exitFailed)
	case found.Pending:
		return failuref("The page does not come: no answer within half a minute.")
	case found.Error != nil:
		return failuref("%s gives nothing: %s (%s).", shownURL(c.Page), strings.TrimSuffix(found.Error.Message, "."), found.Error.ErrorType)
	}
	var line bytes.Buffer
	if err := json.Indent(&line, withoutNulls(found.Raw), "", "  "); err != nil {
		return err
	}
	out := output{w: s.stdout, terminal: s.isTerminal(s.stdout)}
	text := line.Bytes()
	if out.terminal {
		text = cleanJSON(text)
	}
	if err := out.write(text); err != nil {
		return err
	}
	if len(found.Missing) == 0 {
		return nil
	}
	s.sayf("Required, but not there: %s. A crawl fails a page for that.", strings.Join(found.Missing, ", "))
	return exitError(exitIncomplete)
}

// withoutNulls returns a JSON object without members that are null.
func withoutNulls(raw []byte) []byte {
	all, ok := members(raw)
	if !ok {
		return raw
	}
	return object(slices.DeleteFunc(all, func(m member) bool { return string(m.value) == "null" }))
}

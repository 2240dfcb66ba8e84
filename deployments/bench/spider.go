package main

import (
	"bufio"
	"bytes"
	"context"
	_ "embed" // for the script
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// spiderVersion is that of both packages: the last one with a binary for this platform. The package for Node.js has
// later versions, which load this binary as well.
const spiderVersion = "0.0.157"

// spiderPackages are spider-rs and its binary, which npm does not install of itself.
var spiderPackages = []string{"@spider-rs/spider-rs@" + spiderVersion, "@spider-rs/spider-rs-linux-x64-gnu@" + spiderVersion}

// spiderInstall bounds how long npm takes for 30 MB.
const spiderInstall = 3 * time.Minute

//go:embed spider.mjs
var spiderScript []byte

// What a crawl of spider-rs gives, for its script.
const (
	spiderLinks  = "links"
	spiderTitles = "titles"
)

// spider is spider-rs, a crawler written in Rust, as Node.js loads it.
type spider struct{ node, script string }

// findSpider answers spider-rs as it is below the directory cache, where npm installs it once, so that later runs need
// no network; or nil and, as a sentence, why it cannot be had. look finds programs, as [exec.LookPath].
func findSpider(ctx context.Context, cache string, look func(string) (string, error)) (*spider, string) {
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		return nil, "spider-rs was not measured: its binary is for Linux on x86-64."
	}
	node, err := look("node")
	if err != nil {
		return nil, "spider-rs was not measured: there is no node on PATH (Debian: apt-get install nodejs npm)."
	}
	dir := filepath.Join(cache, "trawl-bench", "spider-"+spiderVersion)
	s := &spider{node: node, script: filepath.Join(dir, "spider.mjs")}
	if _, err := os.Stat(dir); err != nil {
		npm, err := look("npm")
		if err != nil {
			return nil, "spider-rs was not measured: there is no npm on PATH (Debian: apt-get install npm)."
		}
		progress("installing spider-rs %s in %s", spiderVersion, dir)
		if err := installSpider(ctx, npm, dir); err != nil {
			return nil, "spider-rs was not measured: npm did not install it: " + firstLines(err) + "."
		}
	}
	// The script is that of this program, whoever installed the packages.
	if old, err := os.ReadFile(s.script); err != nil || !bytes.Equal(old, spiderScript) {
		if err := os.WriteFile(s.script, spiderScript, 0o600); err != nil {
			return nil, "spider-rs was not measured: " + err.Error() + "."
		}
	}
	if _, err := output(ctx, dir, node, s.script); err != nil {
		return nil, "spider-rs was not measured: node does not load it: " + firstLines(err) + "."
	}
	return s, ""
}

// spiderCache is where spider-rs is installed below.
func spiderCache() string {
	dir, err := os.UserCacheDir()
	if err != nil {
		return os.TempDir() // who has no home has this
	}
	return dir
}

// installSpider has npm install the packages into a directory, which is there only once they are.
func installSpider(ctx context.Context, npm, dir string) error {
	ctx, cancel := context.WithTimeout(ctx, spiderInstall)
	defer cancel()
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil { //nolint:gosec // a cache, as others in this place
		return fmt.Errorf("make a directory: %w", err)
	}
	incomplete, err := os.MkdirTemp(filepath.Dir(dir), "incomplete-")
	if err != nil {
		return fmt.Errorf("make a directory: %w", err)
	}
	defer func() { _ = os.RemoveAll(incomplete) }() // gone when all went well
	if err := os.WriteFile(filepath.Join(incomplete, "package.json"), []byte("{\"private\": true}\n"), 0o600); err != nil {
		return fmt.Errorf("write package.json: %w", err)
	}
	args := append([]string{"install", "--no-audit", "--no-fund", "--ignore-scripts", "--save-exact"}, spiderPackages...)
	if _, err := output(ctx, incomplete, npm, args...); err != nil {
		return err
	}
	err = os.Rename(incomplete, dir)
	if _, there := os.Stat(dir); there == nil {
		return nil // perhaps by another run
	}
	return err
}

// firstLines is what an error begins with, on one line.
func firstLines(err error) string {
	const most = 300
	s := strings.Join(strings.Fields(err.Error()), " ")
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + " …"
	}
	return strings.TrimSuffix(s, ".")
}

// start has spider-rs crawl from a URL on.
func (s *spider) start(ctx context.Context, url, what string) (*child, error) {
	cmd := exec.CommandContext(ctx, s.node, s.script, url, what)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("pipe: %w", err)
	}
	dieWithUs(cmd)
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start spider-rs: %w", err)
	}
	return &child{name: "spider-rs", cmd: cmd, out: bufio.NewReader(out)}, nil
}

// contenders are spider-rs at its fastest, and as its documentation takes something out of a page.
func (s *spider) contenders(at *site, pages int) []contender {
	as := func(name, what string) contender {
		return contender{name, func(ctx context.Context) (crawled, error) {
			return alone(ctx, at, pages, func(ctx context.Context) (*child, error) { return s.start(ctx, at.url(0)+"/p/0", what) })
		}}
	}
	return []contender{as("spider-rs, links alone", spiderLinks), as(spiderWithTitles, spiderTitles)}
}

const spiderWithTitles = "spider-rs, title of each page"

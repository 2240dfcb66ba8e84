//go:build ignore

// Command dockerfile checks Dockerfiles as `docker build --check` does, with the parser and the
// rules of BuildKit, and without an engine: go run -modfile=.ci/deploy.mod .ci/dockerfile.go FILE…
// It also holds .dockerignore of the working directory to what it is for.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/moby/buildkit/client/llb"
	"github.com/moby/buildkit/client/llb/sourceresolver"
	"github.com/moby/buildkit/frontend/dockerfile/dockerfile2llb"
	"github.com/moby/buildkit/frontend/dockerui"
	"github.com/moby/patternmatcher"
	"github.com/moby/patternmatcher/ignorefile"
	"github.com/opencontainers/go-digest"
	ocispecs "github.com/opencontainers/image-spec/specs-go/v1"
)

func main() {
	err := checkIgnored(context.Background())
	for _, file := range os.Args[1:] {
		err = errors.Join(err, check(context.Background(), file))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// check returns an error for a file that BuildKit cannot build, or that breaks one of its rules.
func check(ctx context.Context, file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	source := llb.NewSourceMap(nil, file, "Dockerfile", text)
	source.Definition = &llb.Definition{}
	results, err := dockerfile2llb.DockerfileLint(ctx, text, dockerfile2llb.ConvertOpt{
		Config:         dockerui.Config{BuildArgs: map[string]string{}},
		TargetPlatform: &ocispecs.Platform{OS: "linux", Architecture: "amd64"},
		MetaResolver:   noRegistry{},
		SourceMap:      source,
	})
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	if results.Error != nil {
		return fmt.Errorf("%s: %s", file, results.Error.Message)
	}
	var found []error
	for _, w := range results.Warnings {
		line := int32(0)
		if ranges := w.Location.GetRanges(); len(ranges) > 0 {
			line = ranges[0].GetStart().GetLine()
		}
		found = append(found, fmt.Errorf("%s:%d: %s: %s (%s)", file, line, w.RuleName, w.Detail, w.URL))
	}
	return errors.Join(found...)
}

// checkIgnored returns an error when .dockerignore leaves out a file that Git knows, since the
// programs would then call themselves modified, or lets a secret in.
func checkIgnored(ctx context.Context) error {
	text, err := os.Open(".dockerignore")
	if err != nil {
		return err
	}
	defer text.Close()
	patterns, err := ignorefile.ReadAll(text)
	if err != nil {
		return err
	}
	matcher, err := patternmatcher.New(patterns)
	if err != nil {
		return err
	}
	known, err := exec.CommandContext(ctx, "git", "ls-files", "-z").Output()
	if err != nil {
		fmt.Println("skipped: what .dockerignore leaves out of what Git knows, for Git knows nothing here:", err)
	}
	expect := map[string]bool{
		".env": true, "deployments/.env": true, "deployments/secrets/api-keys": true,
		"deployments/k8s/overlays/example/secrets/admin-key": true,
	}
	for file := range strings.SplitSeq(string(known), "\x00") {
		if file != "" {
			expect[file] = false
		}
	}
	var found []error
	for file, want := range expect {
		got, err := matcher.MatchesOrParentMatches(file)
		if err != nil {
			return err
		}
		if got != want {
			found = append(found, fmt.Errorf(".dockerignore: is %s ignored: %v, and should be %v", file, got, want))
		}
	}
	return errors.Join(found...)
}

// noRegistry stands for every image that a FROM names: the rules look at the file alone.
type noRegistry struct{}

func (noRegistry) ResolveImageConfig(
	_ context.Context, ref string, _ sourceresolver.Opt,
) (string, digest.Digest, []byte, error) {
	return ref, "", []byte(`{"os":"linux","architecture":"amd64","config":{}}`), nil
}

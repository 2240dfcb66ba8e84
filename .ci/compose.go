//go:build ignore

// Command compose loads a Compose file as `docker compose config` does, with the schema, the
// interpolation and the consistency checks of the Compose specification, and prints what
// comes out as JSON: go run -modfile=.ci/deploy.mod .ci/compose.go [--env-file=FILE] FILE…
package main

import (
	"context"
	"flag"
	"fmt"
	"os"

	"github.com/compose-spec/compose-go/v2/cli"
)

func main() {
	settings := flag.String("env-file", "", "in place of the .env beside the first file")
	flag.Parse()
	if err := run(context.Background(), *settings, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, settings string, files []string) error {
	var env []string
	if settings != "" {
		env = []string{settings}
	}
	options, err := cli.NewProjectOptions(files,
		cli.WithOsEnv, cli.WithEnvFiles(env...), cli.WithDotEnv, // as the command does, in this order
		cli.WithInterpolation(true), cli.WithResolvedPaths(true), cli.WithNormalization(true), cli.WithConsistency(true),
		cli.WithDefaultProfiles("*"))
	if err != nil {
		return err
	}
	project, err := options.LoadProject(ctx)
	if err != nil {
		return err
	}
	text, err := project.MarshalJSON()
	if err != nil {
		return err
	}
	_, err = fmt.Println(string(text))
	return err
}

package main

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"

	"example.com/trawl/deployments/chaos/clock"
)

// module is that of Trawl.
const module = "example.com/trawl"

// programs are what was built.
type programs struct{ root, api, worker string }

// build builds the programs from the module that the working directory is in.
func build(ctx context.Context, dir string, withClock bool) (programs, error) {
	root, err := output(ctx, "", "go", "list", "-m", "-f", "{{.Dir}}", module)
	if err != nil {
		return programs{}, err
	}
	b := programs{root: root, api: filepath.Join(dir, "api"), worker: filepath.Join(dir, "worker")}
	if _, err := output(ctx, root, "go", "build", "-trimpath", "-o", b.api, "./api"); err != nil {
		return programs{}, err
	}
	args := []string{"build", "-trimpath", "-o", b.worker}
	if withClock {
		goroot, err := output(ctx, root, "go", "env", "GOROOT")
		if err != nil {
			return programs{}, err
		}
		overlay, err := clock.Overlay(dir, goroot, filepath.Join(root, "worker"))
		if err != nil {
			return programs{}, err
		}
		args = append(args, "-overlay", overlay)
	}
	_, err = output(ctx, root, "go", append(args, "./worker")...)
	return b, err
}

// output answers what a command writes, or an error with what it writes about it.
func output(ctx context.Context, dir, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	var wrong strings.Builder
	cmd.Stderr = &wrong
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, wrong.String())
	}
	return strings.TrimSpace(string(out)), nil
}

// commit names what is tested.
func commit(ctx context.Context, root string) string {
	head, err := output(ctx, root, "git", "rev-parse", "--short", "HEAD")
	if err != nil {
		return "unknown"
	}
	if changes, err := output(ctx, root, "git", "status", "--porcelain"); err != nil || changes != "" {
		head += " dirty"
	}
	return head
}

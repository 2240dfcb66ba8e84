package main

import (
	"path/filepath"
	"regexp"
)

// builtByRun matches the directories where go run leaves programs: a temporary one, or one
// of the build cache.
var builtByRun = regexp.MustCompile(`(^|/)go-build[0-9]*(/|$)|/[0-9a-f]{2}/[0-9a-f]{64}-d$`)

// invocation returns how a person runs this program again, as hints name it. Who has come
// by go run has no program of that name.
func invocation(arg0 string) string {
	dir, base := filepath.Dir(arg0), filepath.Base(arg0)
	switch {
	case arg0 == "":
		return "trawl"
	case builtByRun.MatchString(filepath.ToSlash(dir)):
		return "go run ./deployments/trawl"
	default:
		return base
	}
}

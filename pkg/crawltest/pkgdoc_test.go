package crawltest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestEveryPackageHasOneComment: two would be glued together by go doc in the
// order of the file names, and none leaves the reader to guess.
func TestEveryPackageHasOneComment(t *testing.T) {
	t.Parallel()
	const root = "../.."
	if _, err := os.Stat(filepath.Join(root, "go.mod")); err != nil {
		t.Fatalf("this package has moved: %v", err)
	}
	comments := map[string][]string{} // directory → files with a package comment
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir():
			if d.Name() == "testdata" || strings.HasPrefix(d.Name(), ".") && path != root {
				return filepath.SkipDir
			}
			return nil
		case !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments|parser.PackageClauseOnly)
		if err != nil {
			return err
		}
		dir := filepath.Dir(path)
		comments[dir] = append(comments[dir], described(t, path, f)...)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(comments) < 3 {
		t.Fatalf("only %d packages were found", len(comments))
	}
	for dir, files := range comments {
		if len(files) != 1 {
			t.Errorf("%s has %d package comments, want 1: %v", dir, len(files), files)
		}
	}
}

// described returns path when f has a package comment, which must begin as go
// doc expects.
func described(t *testing.T, path string, f *ast.File) []string {
	t.Helper()
	if f.Doc == nil {
		return nil
	}
	text := f.Doc.Text()
	if text == "" { // directives only, as //go:build above the clause
		return nil
	}
	if want := "Package " + f.Name.Name + " "; f.Name.Name != "main" && !strings.HasPrefix(text, want) {
		t.Errorf("%s: the package comment begins with %.30q, want %q", path, text, want)
	}
	return []string{path}
}

package main

import (
	"regexp"
	"strings"
)

// What the parser of the command line says of a flag.
var (
	enumFault  = regexp.MustCompile(`^(--[a-z-]+) must be one of (.*) but got (".*")$`)
	valueFault = regexp.MustCompile(`^(--[a-z-]+): (missing value|expected|bool value)(?:.* but got ("(?:[^"\\]|\\.)*"))?`)
)

// wanted says what to give for a flag that is not just text.
var wanted = map[string]string{
	"--max-pages": "give a whole number from 1", "--concurrency": "give a whole number from 1",
	"--limit": "give a whole number from 1", "--top": "give a whole number from 1", "--max-depth": "give a whole number from 0",
	"--delay": "write a unit, as 5s or 500ms", "--time-limit": "write a unit, as 90s or 10m",
}

// parserWords puts what the parser says into plain words: it speaks of types and tokens.
func parserWords(text string) string {
	if m := enumFault.FindStringSubmatch(text); m != nil {
		names := strings.ReplaceAll(strings.ReplaceAll(m[2], `"`, ""), ",", ", ")
		return m[1] + ": give one of " + names + ", not " + m[3] + "."
	}
	if m := valueFault.FindStringSubmatch(text); m != nil {
		return m[1] + ": " + valueWords(m[1], m[2], m[3]) + "."
	}
	missing, ok := strings.CutPrefix(text, "expected ")
	switch {
	case ok && strings.HasPrefix(missing, `"<id>`):
		return "The id of a job is missing; list shows the jobs that there are."
	case ok && strings.HasPrefix(missing, `"<collection>`):
		return "The name of a collection is missing; collections shows those that there are."
	case ok && strings.HasPrefix(missing, `"<page>`):
		return "The page is missing: a URL, a file of HTML, or - for standard input."
	case ok:
		return missing + " is missing."
	default:
		return text
	}
}

// valueWords says what is wrong with the value of a flag. That of a flag which takes any
// text is not repeated: it may be a key.
func valueWords(flag, fault, got string) string {
	want, known := wanted[flag]
	negative := strings.HasPrefix(got, `"-`)
	switch {
	case fault == "bool value":
		return "it takes no value"
	case fault == "missing value" || got == "" || got == `"EOL"`:
		if known {
			return "its value is missing: " + want
		}
		return "its value is missing"
	case !known && negative:
		return "a value that begins with - is written as " + flag + "=VALUE"
	case !known:
		return "this value cannot be taken"
	case negative && strings.HasPrefix(want, "write a unit"):
		return "give more than 0s, not " + got
	default:
		return want + ", not " + got
	}
}

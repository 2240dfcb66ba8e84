package main

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/alecthomas/kong"
)

// checkText refuses what is no UTF-8: the parser and JSON would turn it into other text
// without a word. The argument is not repeated: it may be a key.
func checkText(args []string) error {
	var faults []string
	for i, arg := range args {
		if utf8.ValidString(arg) {
			continue
		}
		name, _, _ := strings.Cut(arg, "=")
		if !strings.HasPrefix(name, "-") && i > 0 {
			name = args[i-1]
		}
		if !strings.HasPrefix(name, "-") || !utf8.ValidString(name) {
			name = fmt.Sprintf("argument %d", i+1)
		}
		faults = append(faults, name+": this is no UTF-8 text; does the terminal write in another encoding?")
	}
	if faults != nil {
		return badUsage(faults...)
	}
	return nil
}

// together returns args with the URLs or ids of a command that takes several in one place,
// behind its flags: the parser ends such a list at the first flag. What it does not
// understand it leaves to the parser, which says what is wrong.
func together(parser *kong.Kong, args []string) []string {
	command := listTaker(parser, args)
	if command == nil {
		return args
	}
	var flags, list []string
	takes := takers(command)
	for rest := args[1:]; len(rest) > 0; {
		arg := rest[0]
		n := 1
		switch {
		case arg == "--":
			return slices.Concat(args[:1], flags, []string{"--"}, list, rest[1:])
		case len(arg) < 2 || arg[0] != '-':
			list = append(list, arg)
			rest = rest[1:]
			continue
		case takes(arg):
			n = 2
		}
		if n > len(rest) {
			return args // its value is missing, and no URL is to stand in
		}
		flags = append(flags, rest[:n]...)
		rest = rest[n:]
	}
	return slices.Concat(args[:1], flags, list)
}

// listTaker returns the command that args begin with if it takes a list, nil for none.
func listTaker(parser *kong.Kong, args []string) *kong.Node {
	if len(args) == 0 {
		return nil
	}
	for _, node := range parser.Model.Children {
		lists := len(node.Positional) == 1 && node.Positional[0].IsCumulative()
		if node.Name == args[0] && lists && !node.Passthrough {
			return node
		}
	}
	return nil
}

// takers returns a function that reports whether the value of a flag, as it is given, is
// the argument behind it.
func takers(command *kong.Node) func(arg string) bool {
	values := map[string]bool{}
	for _, group := range command.AllFlags(false) {
		for _, flag := range group {
			takes := !flag.IsBool() && !flag.IsCounter()
			values["--"+flag.Name] = takes
			if flag.Short != 0 {
				values["-"+string(flag.Short)] = takes
			}
		}
	}
	return func(arg string) bool {
		if strings.HasPrefix(arg, "--") {
			return values[arg] // one with = in it has its value
		}
		for i, short := range arg[1:] {
			if values["-"+string(short)] {
				return i+1 == len(arg)-1 // else the rest is the value
			}
		}
		return false
	}
}

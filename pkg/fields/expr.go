package fields

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"regexp"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"

	"github.com/expr-lang/expr"
	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/conf"
	"github.com/expr-lang/expr/file"
	"github.com/expr-lang/expr/parser"
	"github.com/expr-lang/expr/vm"

	"example.com/trawl/pkg/crawl"
)

// An expression runs on values that a page chose. What bounds it is its form, which is known when
// it is compiled: without loops, variables and ranges each of its nodes is evaluated at most once,
// and no function returns more than it was given, or than a value may be long.
const (
	maxExprNodes  = 200
	exprMemory    = 1 << 16 // elements of arrays that are written in the expression
	exprNodeSteps = 8
)

// exprFunctions are the functions of expr that are offered: those that look at each argument once
// and return no more than they were given. join, replace and the checked operators are ours.
var exprFunctions = []string{
	"len", "abs", "ceil", "floor", "round", "float", "string", "trim", "trimPrefix", "trimSuffix", "upper", "lower",
	"indexOf", "lastIndexOf", "hasPrefix", "hasSuffix", "max", "min", "sum", "mean", "median", "first", "last",
}

var (
	errOverflow = errors.New("the number is too large")
	errTooLong  = errors.New("the text is too long")
)

// derived is a compiled expression.
type derived struct {
	program *vm.Program
	uses    []int // the fields that it reads
	steps   int   // for values that are short
	regex   int   // instructions of its regular expressions
}

// parseExpr reads an expression. It returns the names that it uses, and what bounds its work.
func parseExpr(source string) (d *derived, names []string, err error) {
	defer recoverExpr(&err)
	parsed, err := parser.ParseWithConfig(source, exprConfig())
	if err != nil {
		return nil, nil, exprError(err)
	}
	v := &exprVisitor{calls: map[ast.Node]bool{}}
	// Callees are met behind their calls, but are no names of fields.
	ast.Walk(&parsed.Node, v)
	if v.err != "" {
		return nil, nil, errors.New(v.err)
	}
	for _, id := range v.identifiers {
		if !v.calls[id] && !slices.Contains(names, id.Value) {
			names = append(names, id.Value)
		}
	}
	return &derived{steps: exprNodeSteps * v.nodes, regex: v.regex}, names, nil
}

// recoverExpr turns a panic of the library into an error.
func recoverExpr(err *error) {
	if r := recover(); r != nil {
		*err = fmt.Errorf("the expression cannot be used: %v", r)
	}
}

// exprError is an error of the library for a person: in one line, with the place.
func exprError(err error) error {
	var at *file.Error
	if errors.As(err, &at) && at.Line > 0 {
		return fmt.Errorf("at character %d: %s", at.Column+1, strings.ReplaceAll(at.Message, "token EOF", "end"))
	}
	return err
}

// exprVisitor refuses what makes work without a bound, and gathers names.
type exprVisitor struct {
	identifiers []*ast.IdentifierNode
	calls       map[ast.Node]bool
	err         string
	regex       int
	nodes       int
}

// Visit implements ast.Visitor.
func (v *exprVisitor) Visit(node *ast.Node) {
	v.nodes++
	switch n := (*node).(type) {
	case *ast.IdentifierNode:
		v.identifiers = append(v.identifiers, n)
	case *ast.CallNode:
		v.calls[n.Callee] = true
	case *ast.VariableDeclaratorNode, *ast.SequenceNode:
		v.refuse("variables (let) are not offered. Make another field of the part and use its name")
	case *ast.PredicateNode, *ast.PointerNode:
		v.refuse(noLoops)
	case *ast.BuiltinNode:
		if !slices.Contains(exprFunctions, n.Name) { // the parser knows those with loops by itself
			v.refuse(noLoops)
		}
	case *ast.MapNode:
		v.refuse("a field is one value or a list. Leave out the {}")
	case *ast.BinaryNode:
		v.binary(n)
	}
}

const noLoops = "loops over lists (map, filter, count, #) are not offered. " +
	"Use sum, mean, min, max, len, first, last or in"

func (v *exprVisitor) refuse(message string) {
	if v.err == "" {
		v.err = message
	}
}

func (v *exprVisitor) binary(n *ast.BinaryNode) {
	switch n.Operator {
	case "..":
		v.refuse("ranges (..) are not offered. Compare with >= and <=")
	case "matches":
		pattern, ok := n.Right.(*ast.StringNode)
		if !ok {
			v.refuse("matches takes an expression that is written out, and not one that is computed")
			return
		}
		size, message := regexSize(pattern.Value)
		if message != "" {
			v.refuse(message)
		}
		v.regex += size
	}
}

// exprConfig is the language without what is not offered.
func exprConfig() *conf.Config {
	c := conf.CreateNew()
	for _, option := range exprOptions() {
		option(c)
	}
	for name := range c.Disabled {
		delete(c.Builtins, name)
	}
	return c
}

func exprOptions() []expr.Option {
	options := []expr.Option{expr.MaxNodes(maxExprNodes), expr.DisableAllBuiltins()}
	for _, name := range exprFunctions {
		options = append(options, expr.EnableBuiltin(name))
	}
	return append(options,
		expr.Function("join", joinTexts, new(func([]string, string) string), new(func([]any, string) string)),
		expr.Function("int", toInteger, new(func(int) int), new(func(float64) int), new(func(string) int)),
		expr.Function("replace", replaceText, new(func(string, string, string) string)),
		expr.Function("addText", addTexts, new(func(string, string) string)),
		expr.Function("addIntegers", addIntegers, new(func(int, int) int)),
		expr.Function("subIntegers", subIntegers, new(func(int, int) int)),
		expr.Function("mulIntegers", mulIntegers, new(func(int, int) int)),
		expr.Operator("+", "addText", "addIntegers"),
		expr.Operator("-", "subIntegers"),
		expr.Operator("*", "mulIntegers"),
	)
}

// toInteger drops decimals. What is no longer exact in a float64 is refused.
func toInteger(args ...any) (any, error) {
	switch v := args[0].(type) {
	case int:
		return v, nil
	case float64:
		if math.Abs(v) <= maxExact {
			return int(v), nil
		}
		return nil, errOverflow
	case string:
		return strconv.Atoi(trimBlanks(v))
	}
	return nil, errMissing
}

func joinTexts(args ...any) (any, error) {
	list, ok := args[0].([]string)
	if written, isList := args[0].([]any); isList { // [a, b] in the expression
		ok = true
		for _, v := range written {
			s, isText := v.(string)
			ok = ok && isText
			list = append(list, s)
		}
	}
	separator, isText := args[1].(string)
	if !ok || !isText {
		return nil, errMissing
	}
	total := len(separator) * len(list)
	for _, s := range list {
		total += len(s)
	}
	if total > MaxValueBytes {
		return nil, errTooLong
	}
	return strings.Join(list, separator), nil
}

func replaceText(args ...any) (any, error) {
	s, old, with, err := threeTexts(args)
	if err != nil {
		return nil, err
	}
	if len(s)+strings.Count(s, old)*len(with) > MaxValueBytes {
		return nil, errTooLong
	}
	return strings.ReplaceAll(s, old, with), nil
}

func threeTexts(args []any) (a, b, c string, err error) {
	var ok [3]bool
	a, ok[0] = args[0].(string)
	b, ok[1] = args[1].(string)
	c, ok[2] = args[2].(string)
	if !ok[0] || !ok[1] || !ok[2] {
		return "", "", "", errMissing
	}
	return a, b, c, nil
}

// errMissing says that a value that an expression needs is not there.
var errMissing = errors.New("a value is missing")

func addTexts(args ...any) (any, error) {
	a, okA := args[0].(string)
	b, okB := args[1].(string)
	switch {
	case !okA || !okB:
		return nil, errMissing
	case len(a)+len(b) > MaxValueBytes:
		return nil, errTooLong
	}
	return a + b, nil
}

// integers calls f with two numbers that are there.
func integers(args []any, f func(a, b int) (int, bool)) (any, error) {
	a, okA := args[0].(int)
	b, okB := args[1].(int)
	if !okA || !okB {
		return nil, errMissing
	}
	n, ok := f(a, b)
	if !ok {
		return nil, errOverflow
	}
	return n, nil
}

func addIntegers(args ...any) (any, error) {
	return integers(args, func(a, b int) (int, bool) { return a + b, (a+b > a) == (b > 0) })
}

func subIntegers(args ...any) (any, error) {
	return integers(args, func(a, b int) (int, bool) { return a - b, (a-b < a) == (b > 0) })
}

func mulIntegers(args ...any) (any, error) {
	return integers(args, func(a, b int) (int, bool) {
		if a == 0 || b == 0 {
			return 0, true
		}
		n := a * b
		return n, n/b == a && (a != -1 || b != math.MinInt) && (b != -1 || a != math.MinInt)
	})
}

// compile compiles the expression over fields whose types are known.
func (d *derived) compile(source string, env map[string]any) (err error) {
	defer recoverExpr(&err)
	d.program, err = expr.Compile(source, append(exprOptions(), expr.Env(env))...)
	if err != nil {
		return exprError(err)
	}
	return nil
}

// sample is a value of the type that a field has in an expression.
func (f *field) sample() any {
	switch {
	case f.kind == Number && f.Many:
		return []float64{}
	case f.kind == Number:
		return 0.0
	case f.kind == Integer && f.Many:
		return []int{}
	case f.kind == Integer:
		return 0
	case f.kind == Bool && f.Many:
		return []bool{}
	case f.kind == Bool:
		return false
	case f.Many:
		return []string{}
	}
	return ""
}

// operand is the value of a field in an expression: nil if there is none, or if it is an integer
// that has no place in 64 bits.
func (f *field) operand(v any) any {
	list, ok := v.([]any)
	if !ok || !f.Many {
		return f.scalar(v)
	}
	switch f.kind {
	case Number:
		return listOf[float64](f, list)
	case Integer:
		return listOf[int](f, list)
	case Bool:
		return listOf[bool](f, list)
	case Text, Date, URL, HTML:
	}
	return listOf[string](f, list)
}

func (f *field) scalar(v any) any {
	n, ok := v.(json.Number)
	switch {
	case !ok:
		return v
	case f.kind == Integer:
		i, err := strconv.Atoi(n.String())
		if err != nil {
			return nil
		}
		return i
	}
	x, err := n.Float64()
	if err != nil {
		return nil
	}
	return x
}

func listOf[T any](f *field, list []any) any {
	out := make([]T, 0, len(list))
	for _, v := range list {
		scalar := f.scalar(v)
		// A thousand of these have a sum of 64 bits.
		if i, ok := scalar.(int); ok && (i > maxExact || i < -maxExact) {
			return nil
		}
		t, ok := scalar.(T)
		if !ok {
			return nil
		}
		out = append(out, t)
	}
	return out
}

// kindOf says which type of field an expression gives.
func kindOf(t reflect.Type) (kind Type, many, ok bool) {
	if t == nil {
		return "", false, false
	}
	switch t.Kind() {
	case reflect.String:
		return Text, false, true
	case reflect.Bool:
		return Bool, false, true
	case reflect.Int:
		return Integer, false, true
	case reflect.Float64:
		return Number, false, true
	case reflect.Slice:
		kind, many, ok = kindOf(t.Elem())
		return kind, true, ok && !many
	}
	return "", false, false
}

// run evaluates the expression.
func (d *derived) run(env map[string]any) (v any, err error) {
	defer recoverExpr(&err)
	machine := vm.VM{MemoryBudget: exprMemory}
	return machine.Run(d.program, env)
}

// result turns what an expression gave into the value of the field.
func (f *field) result(v any, base crawl.URL) (any, bool) {
	if r := reflect.ValueOf(v); r.IsValid() && r.Kind() == reflect.Slice {
		if !f.Many || r.Len() > MaxValues {
			return nil, false
		}
		out := make([]any, 0, r.Len())
		for i := range r.Len() {
			e, ok := f.one(r.Index(i).Interface(), base)
			if !ok {
				return nil, false
			}
			out = append(out, e)
		}
		return out, true
	}
	if f.Many {
		return nil, false
	}
	return f.one(v, base)
}

// maxExact is up to where each integer is a float64.
const maxExact = 1 << 53

func (f *field) one(v any, base crawl.URL) (any, bool) {
	switch v := v.(type) {
	case string:
		if f.kind == Bool || f.kind == Number || f.kind == Integer {
			return nil, false
		}
		return f.parse(strings.ToValidUTF8(v, "\uFFFD"), base)
	case bool:
		return v, f.kind == Bool
	case int:
		return json.Number(strconv.Itoa(v)), f.kind == Integer || f.kind == Number
	case float64:
		return f.float(v)
	}
	return nil, false
}

func (f *field) float(v float64) (any, bool) {
	switch {
	case math.IsNaN(v) || math.IsInf(v, 0) || (f.kind != Integer && f.kind != Number):
		return nil, false
	case f.kind == Integer && (v != math.Trunc(v) || math.Abs(v) > maxExact):
		return nil, false
	}
	b, err := json.Marshal(v)
	if f.kind == Integer {
		b, err = strconv.AppendFloat(nil, v, 'f', 0, 64), nil
	}
	if string(b) == "-0" {
		b = []byte("0")
	}
	return json.Number(b), err == nil
}

// maxRegexInstructions bounds a compiled regular expression: with 64 KiB of text, its work.
const maxRegexInstructions = 1000

// regexSize returns how many instructions a regular expression has, or says what is wrong with it.
func regexSize(source string) (size int, message string) {
	if len(source) > MaxRegexBytes {
		return 0, fmt.Sprintf("The expression has more than %d bytes. Write a shorter one.", MaxRegexBytes)
	}
	tree, err := syntax.Parse(source, syntax.Perl)
	if err == nil {
		_, err = regexp.Compile(source)
	}
	if err != nil {
		return 0, fmt.Sprintf("This is no regular expression of RE2: %s. Mend it; (?=…), (?!…) and \\1 are not offered.",
			strings.TrimPrefix(err.Error(), "error parsing regexp: "))
	}
	program, err := syntax.Compile(tree.Simplify())
	if err != nil || len(program.Inst) > maxRegexInstructions {
		return 0, "The expression is too large once it is compiled. Use smaller counts in {}, or * and +."
	}
	return len(program.Inst), ""
}

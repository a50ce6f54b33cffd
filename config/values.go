package config

import (
	"math"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
)

// attribute is one evaluated setting of the file.
type attribute struct {
	name string
	// value in the types that sdk.Schema.Resolve takes; nil for null.
	value any
	// sensitive says that the value, or a part of it, came from env or file.
	sensitive bool
	// ordinary says that all that came from there is an ordinary text of env.
	ordinary bool
	// blocks are those of that name, for what stands as blocks; the value is then a list
	// of maps, and expr is nil.
	blocks    []nestedBlock
	expr      hclsyntax.Expression
	nameRange hcl.Range
	// broken says that it could not be evaluated, which was reported.
	broken bool
}

// itemRange is the place of one item of a list, or of the whole value when it
// is not written as a list.
func (a attribute) itemRange(i int) hcl.Range {
	if list, ok := a.expr.(*hclsyntax.TupleConsExpr); ok && i < len(list.Exprs) {
		return list.Exprs[i].Range()
	}
	return a.expr.Range()
}

// goValue converts a known, unmarked value. Nothing is converted between
// strings and numbers; what has no counterpart stays as it is, which no schema
// accepts.
func goValue(v cty.Value) any {
	if v.IsNull() {
		return nil
	}
	t := v.Type()
	switch {
	case t == cty.String:
		return v.AsString()
	case t == cty.Bool:
		return v.True()
	case t == cty.Number:
		return goNumber(v)
	case t.IsTupleType() || t.IsListType() || t.IsSetType():
		list := make([]any, 0, v.LengthInt())
		for _, item := range v.Elements() {
			list = append(list, goValue(item))
		}
		return list
	case t.IsObjectType() || t.IsMapType():
		m := make(map[string]any, v.LengthInt())
		for key, item := range v.Elements() {
			m[key.AsString()] = goValue(item)
		}
		return m
	default:
		return v
	}
}

// goNumber gives an int64 where that is exact, else the nearest float64, which
// is infinite for a number beyond its range.
func goNumber(v cty.Value) any {
	big := v.AsBigFloat()
	if n, accuracy := big.Int64(); accuracy == 0 {
		return n
	}
	f, _ := big.Float64()
	if f == math.Trunc(f) && !math.IsInf(f, 0) && !big.IsInt() {
		// Too near to a whole number for a float64, and still not one.
		return math.Nextafter(f, math.Inf(1))
	}
	return f
}

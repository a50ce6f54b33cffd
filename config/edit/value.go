package edit

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/hashicorp/hcl/v2/hclwrite"
	"github.com/zclconf/go-cty/cty"

	"github.com/sandbox-broker/sandbox-broker/config/seal"
)

// Value is what a setting is set to.
type Value struct {
	text    string
	literal cty.Value // cty.NilVal for a sealed one
}

// Literal is a value as it stands in the file: a string, bool, int, int64,
// float64, time.Duration, []string, []int64, []float64 or map[string]string.
func Literal(value any) (Value, error) {
	literal, err := literalOf(value)
	if err != nil {
		return Value{}, err
	}
	return Value{text: render(hclwrite.TokensForValue(literal)), literal: literal}, nil
}

// Secret is a value that is written sealed, by the first key of the ring.
func Secret(ring *seal.Keyring, value string) (Value, error) {
	sealed, err := ring.Seal(value)
	if err != nil {
		return Value{}, err
	}
	return Value{text: render(hclwrite.TokensForFunctionCall("sealed", hclwrite.TokensForValue(cty.StringVal(sealed))))}, nil
}

func literalOf(value any) (cty.Value, error) {
	switch v := value.(type) {
	case string:
		return cty.StringVal(v), nil
	case bool:
		return cty.BoolVal(v), nil
	case int:
		return cty.NumberIntVal(int64(v)), nil
	case int64:
		return cty.NumberIntVal(v), nil
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return cty.NilVal, fmt.Errorf("%v cannot be written into the configuration", v)
		}
		return cty.NumberFloatVal(v), nil
	case time.Duration:
		return cty.StringVal(v.String()), nil
	case []string:
		return tupleOf(v)
	case []int64:
		return tupleOf(v)
	case []float64:
		return tupleOf(v)
	case map[string]string:
		items := map[string]cty.Value{}
		for key, item := range v {
			items[key] = cty.StringVal(item)
		}
		return cty.ObjectVal(items), nil
	default:
		return cty.NilVal, fmt.Errorf("a %T cannot be written into the configuration", value)
	}
}

func tupleOf[T any](list []T) (cty.Value, error) {
	items := make([]cty.Value, len(list))
	for i, item := range list {
		value, err := literalOf(item)
		if err != nil {
			return cty.NilVal, err
		}
		items[i] = value
	}
	return cty.TupleVal(items), nil
}

// render lays tokens out as the formatter does, lines ending in \n.
func render(tokens hclwrite.Tokens) string {
	f := hclwrite.NewEmptyFile()
	f.Body().SetAttributeRaw("x", tokens)
	return strings.TrimSuffix(strings.TrimPrefix(string(f.Bytes()), "x = "), "\n")
}

// indented puts an indentation before every line but the first.
func indented(text, indentation string) string {
	return strings.ReplaceAll(text, "\n", "\n"+indentation)
}

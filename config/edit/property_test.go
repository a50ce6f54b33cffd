package edit_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/config/edit"
)

// wild is a configuration in many hands, laid out by each in another way.
type wild struct {
	*rand.Rand
	text    strings.Builder
	newline string
	notes   int
}

func (w *wild) line(format string, args ...any) {
	fmt.Fprintf(&w.text, format, args...)
	w.text.WriteString(w.newline)
}

// note is a comment that stands nowhere else.
func (w *wild) note() string {
	w.notes++
	return fmt.Sprintf("%s note %d", []string{"#", "//"}[w.IntN(2)], w.notes)
}

// between is what may stand between two things.
func (w *wild) between(indentation string) {
	switch w.IntN(7) {
	case 0:
		w.line("")
	case 1:
		w.line("%s%s", indentation, w.note())
	case 2:
		w.line("")
		w.line("%s%s", indentation, w.note())
	case 3:
		w.line("%s/* %s", indentation, w.note())
		w.line("%s*/", indentation)
	case 4:
		w.line("%s/* %s", indentation, w.note())
		w.text.WriteString(indentation + "*/ ") // what comes next is in its last line
	}
}

func (w *wild) behind() string {
	switch w.IntN(8) {
	case 0, 1:
		return " " + w.note()
	case 2:
		return " /* " + w.note() + w.newline + "   */"
	}
	return ""
}

var settingNames = []string{"alpha", "beta", "gamma_rays", "delta"}

func (w *wild) value() string {
	return []string{
		`"text"`, `"a # no comment"`, "12", "true", "null", `["x", "y"]`, `[ "x","y" ]`, `{ a = "1", b = "2" }`, `env("HOME", "none")`,
		`"${env("HOME", "none")}/x"`, `sealed("sb1:x:y")`, "[" + w.newline + "    \"x\", " + w.note() + w.newline + "    \"y\"" + w.newline + "  ]",
		"<<EOT" + w.newline + "  a text # no comment" + w.newline + "EOT",
	}[w.IntN(13)]
}

func (w *wild) settings(indentation string, names []string) {
	for _, name := range names {
		if w.IntN(2) == 0 {
			continue
		}
		w.between(indentation)
		value := w.value()
		if strings.HasPrefix(value, "<<") {
			w.line("%s%s = %s", indentation, name, value)
			continue
		}
		w.line("%s%s%s=%s%s%s", indentation, name, strings.Repeat(" ", w.IntN(4)), strings.Repeat(" ", w.IntN(2)), value, w.behind())
	}
}

func (w *wild) block(header string, inner bool) {
	w.between("")
	switch w.IntN(6) {
	case 0:
		w.line("%s {}%s", header, w.behind())
		return
	case 1:
		w.line("%s { alpha = 1 }%s", header, w.behind())
		return
	}
	indentation := []string{"  ", "\t", "    "}[w.IntN(3)]
	w.line("%s {%s", header, w.behind())
	w.settings(indentation, settingNames)
	if inner {
		switch w.IntN(3) {
		case 0:
			w.line("%squota { alpha = 1 }", indentation)
		case 1:
			w.between(indentation)
			w.line("%squota {", indentation)
			w.settings(indentation+indentation, settingNames)
			w.line("%s}%s", indentation, w.behind())
		}
		if w.IntN(3) == 0 {
			w.line("%szeta = 1%s", indentation, w.behind())
		}
	} else if strings.HasPrefix(header, "provider") {
		w.nested(indentation)
	}
	w.between(indentation)
	w.line("}%s", w.behind())
}

// nested writes blocks within that of a provider, between other things.
func (w *wild) nested(indentation string) {
	for range w.IntN(4) {
		w.between(indentation)
		switch w.IntN(4) {
		case 0:
			w.line("%srules {}%s", indentation, w.behind())
		case 1:
			w.line("%srules { alpha = [%s1%s] }%s", indentation, w.newline, w.newline, w.behind())
		default:
			w.line("%srules {%s", indentation, w.behind())
			w.settings(indentation+indentation, settingNames)
			for range w.IntN(3) {
				w.between(indentation + indentation)
				w.line("%slimit {%s", indentation+indentation, w.behind())
				w.settings(indentation+indentation+indentation, settingNames)
				w.line("%s}%s", indentation+indentation, w.behind())
			}
			w.between(indentation)
			w.line("%s}%s", indentation, w.behind())
		}
		if w.IntN(3) == 0 {
			w.line("%sother { alpha = 1 }%s", indentation, w.behind())
		}
	}
}

func wildText(seed uint64) string {
	w := &wild{Rand: rand.New(rand.NewPCG(seed, 1)), newline: []string{"\n", "\n", "\r\n"}[seed%3]}
	w.between("")
	w.settings("", []string{"listen", "state"})
	w.block(`provider "one"`, false)
	w.block("providers", false)
	w.block(`tenant "t"`, true)
	w.block(`provider "two"`, false)
	w.block(`tenant "u"`, true)
	w.between("")
	text := w.text.String()
	if seed%5 == 0 {
		text = strings.TrimRight(text, "\r\n")
	}
	return text
}

// tokens are the words of a file without their layout. A comment is one of them.
func tokens(t testing.TB, text string) []string {
	t.Helper()
	all, diags := hclsyntax.LexConfig([]byte(text), "sandbox.hcl", hcl.InitialPos)
	assert.Assert(t, !diags.HasErrors(), "%v\n%s", diags, text)
	var words []string
	for _, token := range all {
		word := strings.TrimSpace(string(token.Bytes))
		if token.Type == hclsyntax.TokenStringLit || token.Type == hclsyntax.TokenQuotedLit {
			word = string(token.Bytes)
		}
		if word != "" {
			words = append(words, word)
		}
	}
	return words
}

// difference is what stands between the words that two files begin and end with.
func difference(before, after []string) (gone, come []string) {
	for len(before) > 0 && len(after) > 0 && before[0] == after[0] {
		before, after = before[1:], after[1:]
	}
	for len(before) > 0 && len(after) > 0 && before[len(before)-1] == after[len(after)-1] {
		before, after = before[:len(before)-1], after[:len(after)-1]
	}
	return before, after
}

// Whatever is asked of one setting or block, no word and no comment elsewhere goes,
// comes or changes its place.
func TestNothingChangesThatWasNotAskedFor(t *testing.T) {
	blocks := []edit.Block{edit.Provider("one"), edit.Provider("two"), edit.Tenant("t"), edit.Tenant("u"), edit.Quota("t"), edit.Quota("u"), edit.Providers()}
	for _, provider := range []edit.Block{edit.Provider("one"), edit.Provider("two")} {
		for i := range 3 {
			rules := provider.In("rules", i)
			blocks = append(blocks, rules, rules.In("limit", 0), rules.In("limit", 1))
		}
	}
	values := []any{"fresh", 77, true, []string{"m", "n"}, map[string]string{"k": "v"}}
	for seed := range uint64(1000) {
		text := wildText(seed)
		r := rand.New(rand.NewPCG(seed, 2))
		block, setting := blocks[r.IntN(len(blocks))], settingNames[r.IntN(len(settingNames))]
		d, _ := opened(t, text)
		before, old := tokens(t, text), tokens(t, edit.Written(d, block, setting))
		there, given := d.Has(block), edit.Given(d, block, setting)
		name := fmt.Sprintf("seed %d, %s %s", seed, block, setting)
		report := func() string {
			return fmt.Sprintf("%s\n--- before\n%s\n--- after\n%s", name, text, textOf(t, d))
		}
		switch r.IntN(5) {
		case 0, 1:
			value := literal(t, values[r.IntN(len(values))])
			if err := d.Overwrite(block, setting, value); err != nil {
				assert.Assert(t, !there, "%s: %v", name, err)
				continue
			}
			gone, come := difference(before, tokens(t, textOf(t, d)))
			if given {
				// What belongs to the old value may go, and nothing comes but the new one.
				assert.Assert(t, !slices.ContainsFunc(come, isComment), report())
				for _, word := range gone {
					assert.Assert(t, slices.Contains(old, word), report())
				}
				assert.Assert(t, len(gone) <= len(old), report())
			} else {
				assert.Assert(t, len(gone) == 0, report())
				assert.Assert(t, slices.Contains(come, setting), report())
			}
			// Removed again, it is as if it had not been.
			if given || !there {
				continue
			}
			assert.NilError(t, d.Unset(block, setting))
			assert.DeepEqual(t, tokens(t, textOf(t, d)), before)
		case 2, 3:
			if !there {
				continue
			}
			assert.NilError(t, d.Unset(block, setting))
			gone, come := difference(before, tokens(t, textOf(t, d)))
			assert.Assert(t, len(come) == 0, report())
			assert.Assert(t, given || len(gone) == 0, report())
			for _, other := range settingNames {
				assert.Assert(t, other == setting || !slices.Contains(gone, other), report())
			}
		default:
			if !there {
				if err := d.Add(block); err != nil {
					assert.Assert(t, len(block.Within) > 0, "%s: %v", name, err)
					assert.Equal(t, textOf(t, d), text)
					continue
				}
				assert.Assert(t, d.Has(block), report())
				gone, _ := difference(before, tokens(t, textOf(t, d)))
				assert.Assert(t, len(gone) == 0, report())
				// What was made around it goes too.
				for !slices.Equal(tokens(t, textOf(t, d)), before) {
					assert.Assert(t, d.Has(block), report())
					assert.NilError(t, d.RemoveIfEmpty(block))
					if len(block.Within) == 0 {
						break
					}
					block.Within = block.Within[:len(block.Within)-1]
				}
				assert.DeepEqual(t, tokens(t, textOf(t, d)), before)
				continue
			}
			if len(block.Within) > 0 && r.IntN(2) == 0 {
				assert.NilError(t, d.Insert(block))
				gone, come := difference(before, tokens(t, textOf(t, d)))
				assert.Assert(t, len(gone) == 0 && len(come) == 3 && !given == !edit.Given(d, next(block), setting), report())
				assert.NilError(t, d.RemoveIfEmpty(block))
				assert.Equal(t, textOf(t, d), text, report())
				continue
			}
			assert.NilError(t, d.Remove(block))
			_, come := difference(before, tokens(t, textOf(t, d)))
			assert.Assert(t, len(come) == 0 || strings.Contains(textOf(t, d), "The last block"), report())
		}
	}
}

// next is the block behind one.
func next(block edit.Block) edit.Block {
	within := slices.Clone(block.Within)
	within[len(within)-1].Index++
	block.Within = within
	return block
}

func isComment(word string) bool {
	return strings.HasPrefix(word, "#") || strings.HasPrefix(word, "//") || strings.HasPrefix(word, "/*")
}

package difference

import (
	"bytes"
	"cmp"
	"regexp"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"

	"github.com/sandbox-broker/sandbox-broker/config"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

const (
	// all is what is shown of a value of which nothing is.
	all = "****"
	// shortestSecret is the length from which on a secret is looked for elsewhere.
	shortestSecret = 8
	// shownOfSum is how many digits of a token's sum are shown: as many as name the token.
	shownOfSum = 16
)

// newMasker finds out what of a text is not to be seen.
func newMasker(name string, text []byte, secrets Secrets) *masker {
	m := &masker{text: string(text), secrets: secrets}
	body, diags := config.Syntax(name, text)
	if m.unread = diags.HasErrors() || body == nil; m.unread {
		return m
	}
	m.body(body, rules{root: true})
	m.comments(name)
	return m
}

// rules say what of a body may be shown.
type rules struct {
	root bool
	// schema of the settings. What it does not have is masked.
	schema sdk.Schema
	blocks []config.BlockSchema
	// own are settings that are the broker's, in a provider's block.
	own sdk.Schema
}

// masker collects what is to be replaced.
type masker struct {
	text    string
	secrets Secrets
	unread  bool // it cannot be parsed
	pieces  []piece
	found   []string // secrets, to be looked for elsewhere
}

type piece struct {
	from, to int
	shown    string
}

func (m *masker) body(body *hclsyntax.Body, r rules) {
	if r.root {
		r.blocks = config.Blocks()
		r.schema = blockOf(r.blocks, "").Settings
	}
	for _, a := range body.Attributes {
		switch field, found := fieldOf(a.Name, r.own, r.schema); {
		case a.Name == "token_sha256":
			m.sums(a.Expr)
		case found && !field.Secret:
			m.open(a.Expr)
		default:
			m.hide(a.Expr)
		}
	}
	for _, b := range body.Blocks {
		m.body(b.Body, m.within(b, r))
	}
}

// within are the rules of a block.
func (m *masker) within(b *hclsyntax.Block, r rules) rules {
	if !r.root && len(r.blocks) == 0 { // a block of a provider
		field, _ := fieldOf(b.Type, r.schema)
		return rules{schema: field.Fields}
	}
	block := blockOf(r.blocks, b.Type)
	inner := rules{schema: block.Settings, blocks: block.Blocks}
	label := ""
	if len(b.Labels) > 0 {
		label = b.Labels[0]
	}
	switch {
	case b.Type == "provider":
		inner := rules{own: block.Settings}
		if pluginOf(b, label) == cmp.Or(m.secrets.Plugins[label], label) {
			inner.schema = m.secrets.Schemas[label]
		}
		return inner
	case len(block.Kinds) > 0:
		for _, kind := range block.Kinds {
			if kind.Name == label {
				inner.schema = slices.Concat(block.Settings, kind.Settings)
			}
		}
	}
	return inner
}

// pluginOf is the plugin of a provider's block; empty where that is computed.
func pluginOf(b *hclsyntax.Block, label string) string {
	named, ok := b.Body.Attributes["plugin"]
	if !ok {
		return label
	}
	if value, diags := named.Expr.Value(nil); !diags.HasErrors() && value.Type() == cty.String && value.IsKnown() && !value.IsNull() {
		return value.AsString()
	}
	return ""
}

func blockOf(blocks []config.BlockSchema, name string) config.BlockSchema {
	i := slices.IndexFunc(blocks, func(b config.BlockSchema) bool { return b.Type == name })
	if i < 0 {
		return config.BlockSchema{}
	}
	return blocks[i]
}

func fieldOf(name string, schemas ...sdk.Schema) (sdk.Field, bool) {
	for _, schema := range schemas {
		if field, ok := schema.Field(name); ok {
			return field, true
		}
	}
	return sdk.Field{}, false
}

// replace has a part of the text shown as something else, with as many lines.
func (m *masker) replace(r hcl.Range, shown string) {
	shown += strings.Repeat("\n", strings.Count(m.text[r.Start.Byte:r.End.Byte], "\n"))
	m.pieces = append(m.pieces, piece{r.Start.Byte, r.End.Byte, shown})
}

// open shows a value, but for what functions in it get that is none of a name.
func (m *masker) open(expr hclsyntax.Expression) {
	_ = hclsyntax.VisitAll(expr, func(node hclsyntax.Node) hcl.Diagnostics {
		if call, ok := node.(*hclsyntax.FunctionCallExpr); ok {
			m.call(call)
		}
		return nil
	})
}

// call masks what a function gets, but for the name of a variable or a file.
func (m *masker) call(call *hclsyntax.FunctionCallExpr) {
	for i, argument := range call.Args {
		switch {
		case call.Name == "sealed":
			m.replace(argument.Range(), `"…"`)
		case i == 0 && (call.Name == "env" || call.Name == "file"):
		case call.Name == "env" || call.Name == "file":
			m.hide(argument)
		}
	}
}

// hide masks all literals of a value.
func (m *masker) hide(expr hclsyntax.Expression) {
	switch e := expr.(type) {
	case *hclsyntax.FunctionCallExpr:
		if e.Name == "env" || e.Name == "file" || e.Name == "sealed" {
			m.call(e)
			return
		}
		m.replace(e.Range(), all) // nobody knows it: its name may be the secret
	case *hclsyntax.TupleConsExpr:
		for _, item := range e.Exprs {
			m.hide(item)
		}
	case *hclsyntax.ObjectConsExpr:
		for _, item := range e.Items {
			m.hide(item.ValueExpr)
		}
	case *hclsyntax.TemplateExpr:
		m.template(e)
	case *hclsyntax.ParenthesesExpr:
		m.hide(e.Expression)
	default:
		m.replace(expr.Range(), all)
	}
}

// template masks a text. Of one that is put together nothing is shown.
func (m *masker) template(e *hclsyntax.TemplateExpr) {
	for _, part := range e.Parts {
		m.note(part)
	}
	if !e.IsStringLiteral() {
		m.replace(e.Range(), `"`+all+`"`)
		return
	}
	value, _ := e.Value(nil)
	shown := all
	if text := value.AsString(); !strings.ContainsAny(text, "\r\n") {
		shown = m.secrets.Mask(text)
	}
	m.replace(e.Range(), `"`+shown+`"`)
}

// note has a secret looked for elsewhere.
func (m *masker) note(part hclsyntax.Expression) {
	literal, ok := part.(*hclsyntax.LiteralValueExpr)
	if !ok || literal.Val.Type().FriendlyName() != "string" {
		return
	}
	for line := range strings.Lines(literal.Val.AsString()) {
		if line = strings.TrimSpace(line); len(line) >= shortestSecret {
			m.found = append(m.found, line)
		}
	}
}

// sums shows of the sums of tokens what names the tokens.
func (m *masker) sums(expr hclsyntax.Expression) {
	list, ok := expr.(*hclsyntax.TupleConsExpr)
	if !ok {
		m.hide(expr)
		return
	}
	for _, item := range list.Exprs {
		sum, ok := item.(*hclsyntax.TemplateExpr)
		if !ok || !sum.IsStringLiteral() {
			m.hide(item)
			continue
		}
		value, _ := sum.Value(nil)
		text := value.AsString()
		if !sumOfToken.MatchString(text) { // it may be a token in the place of its sum
			m.hide(item)
			continue
		}
		m.replace(sum.Range(), `"`+text[:shownOfSum]+`…"`)
	}
}

var sumOfToken = regexp.MustCompile(`^[0-9A-Fa-f]{64}$`)

// said is the text of each line of a comment, without its marks.
var said = regexp.MustCompile(`(?m)^[ \t]*(?:#+|//+|/\*+|\*+/?)?[ \t]*(\S.*?)[ \t\r]*(?:\*/)?$`)

// assigning is what a comment has that may be a setting which was turned off.
const assigning = "=:\"'<"

// comments masks comments that may be settings which were turned off, in whatever form: of
// those that stand together all or none.
func (m *masker) comments(name string) {
	tokens, _ := hclsyntax.LexConfig([]byte(m.text), name, hcl.InitialPos)
	var together []hclsyntax.Token
	for _, token := range tokens {
		if token.Type == hclsyntax.TokenComment {
			together = append(together, token)
			continue
		}
		m.remarks(together)
		together = nil
	}
	m.remarks(together)
}

func (m *masker) remarks(together []hclsyntax.Token) {
	if !slices.ContainsFunc(together, func(t hclsyntax.Token) bool { return bytes.ContainsAny(t.Bytes, assigning) }) {
		return
	}
	for _, token := range together {
		for _, at := range said.FindAllSubmatchIndex(token.Bytes, -1) {
			m.pieces = append(m.pieces, piece{token.Range.Start.Byte + at[2], token.Range.Start.Byte + at[3], all})
		}
	}
}

// result is the text with all replaced, and the secrets where they stand elsewhere. It has
// as many lines. One that cannot be parsed is masked as a whole.
func (m *masker) result(found []string) string {
	if m.unread {
		return strings.Repeat(all+"\n", strings.Count(m.text, "\n"))
	}
	elsewhere := func(text string) string {
		for _, secret := range found {
			text = strings.ReplaceAll(text, secret, all)
		}
		return text
	}
	slices.SortStableFunc(m.pieces, func(a, b piece) int { return a.from - b.from })
	var b bytes.Buffer
	at := 0
	for _, p := range m.pieces {
		if p.from < at {
			continue // within what was replaced already
		}
		b.WriteString(elsewhere(m.text[at:p.from]))
		b.WriteString(p.shown)
		at = p.to
	}
	b.WriteString(elsewhere(m.text[at:]))
	return b.String()
}

// Package esm makes JavaScript of modules fit for an interpreter that keeps its
// state, where imports and exports have no place: V8 evaluates one piece after the
// other there, as a script, and has nothing to import by.
package esm

import (
	"strings"

	"github.com/tdewolff/parse/v2"
	"github.com/tdewolff/parse/v2/js"
)

// Import is the name of the function that does in a context what import(…) does
// elsewhere. It returns a promise of the module's namespace.
const Import = "__import"

// maxCode bounds what is looked into, in bytes; longer code stays as it is.
const maxCode = 1 << 20

// Script rewrites imports, which become calls of Import, and leaves out the word
// export. Lines stay where they are. Code that cannot be understood, or that has
// neither, is returned as it is: V8 says best what is wrong with it.
func Script(code string) string {
	if len(code) > maxCode || !strings.Contains(code, "import") && !strings.Contains(code, "export") {
		return code
	}
	tokens, ok := tokenize(code)
	if !ok {
		return code
	}
	r := rewriter{tokens: tokens}
	r.script()
	return r.out.String()
}

// token is a piece of the text.
type token struct {
	kind js.TokenType
	text string
}

// tokenize splits code into tokens, white space and comments included.
func tokenize(code string) ([]token, bool) {
	lexer := js.NewLexer(parse.NewInputString(code))
	var tokens []token
	last := js.ErrorToken // that means something
	for {
		kind, text := lexer.Next()
		if (kind == js.DivToken || kind == js.DivEqToken) && !endsOperand(last) {
			kind, text = lexer.RegExp()
		}
		if kind == js.ErrorToken {
			// At the end, or where the text makes no sense.
			length := 0
			for _, t := range tokens {
				length += len(t.text)
			}
			return tokens, length == len(code)
		}
		tokens = append(tokens, token{kind, string(text)})
		if !blank(kind) {
			last = kind
		}
	}
}

// endsOperand tells a division from a regular expression by what stands before.
func endsOperand(kind js.TokenType) bool {
	switch kind {
	case js.CloseParenToken, js.CloseBracketToken, js.CloseBraceToken, js.StringToken, js.TemplateToken, js.TemplateEndToken, js.RegExpToken,
		js.ThisToken, js.SuperToken, js.NullToken, js.TrueToken, js.FalseToken, js.IncrToken, js.DecrToken:
		return true
	}
	return js.IsNumeric(kind) || js.IsIdentifier(kind)
}

func blank(kind js.TokenType) bool {
	switch kind {
	case js.WhitespaceToken, js.LineTerminatorToken, js.CommentToken, js.CommentLineTerminatorToken:
		return true
	}
	return false
}

// rewriter copies tokens, some in another form.
type rewriter struct {
	tokens []token
	at     int
	out    strings.Builder
}

func (r *rewriter) script() {
	depth := 0
	last := js.SemicolonToken // the beginning is that of a statement
	for r.at < len(r.tokens) {
		t := r.tokens[r.at]
		begins := depth == 0 && (last == js.SemicolonToken || last == js.CloseBraceToken || r.afterLine())
		switch {
		case t.kind == js.ImportToken && begins && r.staticImport():
			last = js.SemicolonToken
			continue
		case t.kind == js.ImportToken && last != js.DotToken && last != js.OptChainToken && r.peek(r.at+1) == js.OpenParenToken:
			r.out.WriteString(Import)
		case t.kind == js.ExportToken && begins && r.declares(r.at+1):
			// What is declared is there for the next piece of code anyway.
		default:
			r.out.WriteString(t.text)
		}
		switch t.kind {
		case js.OpenBraceToken, js.OpenParenToken, js.OpenBracketToken, js.TemplateStartToken:
			depth++
		case js.CloseBraceToken, js.CloseParenToken, js.CloseBracketToken, js.TemplateEndToken:
			depth--
		}
		if !blank(t.kind) {
			last = t.kind
		}
		r.at++
	}
}

// afterLine says whether only white space stands before the token on its line.
func (r *rewriter) afterLine() bool {
	for i := r.at - 1; i >= 0 && blank(r.tokens[i].kind); i-- {
		if strings.ContainsAny(r.tokens[i].text, "\n\r\u2028\u2029") {
			return true
		}
	}
	return false
}

// next is the index of the first token from i on that means something.
func (r *rewriter) next(i int) int {
	for i < len(r.tokens) && blank(r.tokens[i].kind) {
		i++
	}
	return i
}

func (r *rewriter) peek(i int) js.TokenType {
	if i = r.next(i); i < len(r.tokens) {
		return r.tokens[i].kind
	}
	return js.ErrorToken
}

// declares says whether a declaration follows.
func (r *rewriter) declares(i int) bool {
	switch r.peek(i) {
	case js.ConstToken, js.LetToken, js.VarToken, js.FunctionToken, js.ClassToken, js.AsyncToken:
		return true
	}
	return false
}

// staticImport rewrites an import statement, if it is one.
func (r *rewriter) staticImport() bool {
	p := importParser{rewriter: r, i: r.next(r.at + 1)}
	statement, ok := p.parse()
	if !ok {
		return false
	}
	for _, t := range r.tokens[r.at:p.i] {
		if strings.ContainsAny(t.text, "\n") {
			statement += strings.Repeat("\n", strings.Count(t.text, "\n"))
		}
	}
	r.out.WriteString(statement)
	r.at = p.i
	return true
}

// importParser reads what stands behind the word import.
type importParser struct {
	*rewriter
	i int // of the next token
}

func (p *importParser) token() token {
	if p.i = p.next(p.i); p.i < len(p.tokens) {
		return p.tokens[p.i]
	}
	return token{}
}

func (p *importParser) take() token {
	t := p.token()
	p.i = min(p.i+1, len(p.tokens))
	return t
}

func (p *importParser) parse() (string, bool) {
	if p.token().kind == js.StringToken {
		return "await " + p.call(), true
	}
	var names []string // of a destructuring
	namespace := ""
	for {
		switch t := p.take(); {
		case js.IsIdentifier(t.kind):
			names = append(names, "default: "+t.text)
		case t.kind == js.MulToken:
			if p.take().kind != js.AsToken {
				return "", false
			}
			if namespace = p.take().text; namespace == "" {
				return "", false
			}
		case t.kind == js.OpenBraceToken:
			list, ok := p.list()
			if !ok {
				return "", false
			}
			names = append(names, list...)
		default:
			return "", false
		}
		if p.token().kind != js.CommaToken {
			break
		}
		p.take()
	}
	if p.take().kind != js.FromToken || p.token().kind != js.StringToken {
		return "", false
	}
	call := "await " + p.call()
	switch {
	case namespace == "":
		return "const {" + strings.Join(names, ", ") + "} = " + call, true
	case len(names) == 0:
		return "const " + namespace + " = " + call, true
	default:
		return "const " + namespace + " = " + call + "; const {" + strings.Join(names, ", ") + "} = " + namespace, true
	}
}

// list reads names in braces, the first of which is taken.
func (p *importParser) list() ([]string, bool) {
	var names []string
	for {
		t := p.take()
		switch {
		case t.kind == js.CloseBraceToken:
			return names, true
		case t.kind != js.StringToken && !js.IsIdentifierName(t.kind):
			return nil, false
		}
		name := t.text
		if p.token().kind == js.AsToken {
			p.take()
			local := p.take()
			if !js.IsIdentifier(local.kind) {
				return nil, false
			}
			name += ": " + local.text
		}
		names = append(names, name)
		if p.token().kind == js.CommaToken {
			p.take()
		}
	}
}

// call reads the module's name and its attributes, and calls Import with them.
func (p *importParser) call() string {
	name := p.take().text
	end := p.i
	if word := p.token(); word.text != "with" && word.text != "assert" {
		p.i = end // what follows is not ours, white space included
		return Import + "(" + name + ")"
	}
	word := p.take().text
	var attributes strings.Builder
	for depth := 0; p.i < len(p.tokens); {
		t := p.take()
		attributes.WriteString(t.text)
		switch t.kind {
		case js.OpenBraceToken:
			depth++
		case js.CloseBraceToken:
			depth--
		}
		if depth == 0 {
			break
		}
	}
	return Import + "(" + name + ", {" + word + ": " + attributes.String() + "})"
}

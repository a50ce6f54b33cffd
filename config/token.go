package config

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
)

// tokenSums is the setting with the sums of tokens.
const tokenSums = "token_sha256"

var sum = regexp.MustCompile(`^` + hexSum + `$`)

// tokenReader reads sums of tokens and remembers whose each is: nobody shall be two.
type tokenReader struct {
	parser *parser
	owners map[[32]byte]tokenOwner
}

type tokenOwner struct {
	// who in words, such as "tenant \"acme\"".
	who   string
	place hcl.Range
}

// adminOwner stands for the administrators, who are no tenant.
const adminOwner = "the admin block"

func newTokenReader(p *parser) *tokenReader {
	return &tokenReader{parser: p, owners: map[[32]byte]tokenOwner{}}
}

// read takes the setting token_sha256 of a section.
func (r *tokenReader) read(who string, s section) (tokens [][32]byte) {
	a, ok := s.setting(tokenSums)
	if !ok {
		return nil
	}
	for i, text := range s.Settings[tokenSums].([]string) {
		if token, ok := r.token(who, text, a.itemRange(i)); ok {
			tokens = append(tokens, token)
		}
	}
	return tokens
}

// token checks one item.
func (r *tokenReader) token(who, text string, rng hcl.Range) (token [32]byte, ok bool) {
	if !sum.MatchString(text) {
		r.parser.fail(rng, "Invalid token sum", fmt.Sprintf("A SHA-256 sum has 64 hexadecimal digits, and this has %d characters or others than digits and a to f. `sandbox-broker token` makes a token and its sum.", len([]rune(text))))
		return token, false
	}
	if _, err := hex.Decode(token[:], []byte(text)); err != nil {
		return token, false
	}
	if token == sha256.Sum256(nil) {
		r.parser.fail(rng, "Invalid token sum", "This is the sum of nothing at all: the token was empty when the sum was made.")
		return token, false
	}
	if owner, taken := r.owners[token]; taken {
		whose := "A token belongs to one tenant."
		if who == adminOwner || owner.who == adminOwner {
			whose = "A token belongs to one tenant or to an administrator."
		}
		r.parser.fail(rng, "Token given twice", fmt.Sprintf("The same sum stands in %s at %s already. %s", owner.who, placeFrom(owner.place, rng), whose))
		return token, false
	}
	r.owners[token] = tokenOwner{who: who, place: rng}
	return token, true
}

func (r *tokenReader) readAdmin(block *hclsyntax.Block) Admin {
	return Admin{TokenSHA256: r.read(adminOwner, r.parser.readLeaf(block, adminSchema()))}
}

package sdk

import (
	"slices"
	"strings"
)

// Language is the canonical name of a programming language.
type Language string

// Languages known to the broker, which means that they have aliases, and that code in them
// is called by the same rules everywhere (see ExecuteRequest.Arguments). A provider may
// offer others by their lower-case name.
const (
	Python     Language = "python"
	JavaScript Language = "javascript"
	Bash       Language = "bash"
	TypeScript Language = "typescript"
	R          Language = "r"
	Java       Language = "java"
)

// aliases is what agents write, for every provider the same.
var aliases = map[string]Language{
	"python3": Python, "py": Python,
	"js": JavaScript, "node": JavaScript, "nodejs": JavaScript,
	"sh": Bash, "shell": Bash,
	"ts": TypeScript,
}

// ParseLanguage turns what a caller wrote ("JS", "node", "python3") into the
// canonical name. A name that has no alias is returned in lower case.
func ParseLanguage(name string) Language {
	name = strings.ToLower(strings.TrimSpace(name))
	if l, ok := aliases[name]; ok {
		return l
	}
	return Language(name)
}

// TemplateFor returns the name of the template that an execution in language
// gets when the caller named none: the first that lists it, so the order of
// Description.Templates is the provider's choice. It is "" when no template does; the
// request is refused then, before the provider is asked.
func (d Description) TemplateFor(language Language) string {
	for _, t := range d.Templates {
		if slices.Contains(t.Languages, language) {
			return t.Name
		}
	}
	return ""
}

package audit

import "unicode/utf8"

// Bounds of what callers can put into a line: a request may hold megabytes.
const (
	maxText  = 4 << 10 // bytes
	maxItems = 200
	maxCode  = 1 << 20 // bytes
)

// clip cuts what is too long, with an ellipsis at its end.
func (e *Effect) clip() {
	for _, text := range []*string{
		&e.Session, &e.ProviderInstance, &e.ExecutionID, &e.ContextID, &e.CommandID, &e.Template, &e.Language, &e.ProviderSnapshot,
		&e.Program, &e.Path, &e.To, &e.Signal, &e.Change,
		&e.Host, &e.Protocol, &e.Method,
	} {
		*text = clipped(*text, maxText)
	}
	for _, list := range []*[]string{&e.EnvNames, &e.Packages, &e.Paths, &e.Hosts} {
		*list = clippedAll(*list)
	}
	e.Code = clipped(e.Code, maxCode)
}

// clip cuts what a provider may have made too long.
func (o *Outcome) clip() {
	for _, text := range []*string{&o.Status, &o.Made, &o.Region, &o.Verdict, &o.Reason} {
		*text = clipped(*text, maxText)
	}
}

func clipped(text string, most int) string {
	if len(text) <= most {
		return text
	}
	end := most
	for end > most-utf8.UTFMax && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + "…"
}

func clippedAll(list []string) []string {
	var kept []string
	for i, text := range list {
		if i == maxItems {
			return append(kept, "…")
		}
		kept = append(kept, clipped(text, maxText))
	}
	return kept
}

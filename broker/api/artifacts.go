package api

import (
	"strings"
	"unicode/utf8"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

func artifactOf(a sdk.Artifact) Artifact {
	answer := Artifact{Kind: string(a.Kind), Name: a.Name, MIMEType: a.MIMEType, Group: a.Group, Size: a.Size, Refused: a.Refused}
	switch {
	case a.Refused != "":
	case len(a.Data) == 0, isText(a.MIMEType) && utf8.Valid(a.Data):
		content := string(a.Data)
		answer.Text = &content
	default:
		answer.Base64 = a.Data
	}
	return answer
}

// isText tells the types whose content people read.
func isText(mimeType string) bool {
	mimeType, _, _ = strings.Cut(mimeType, ";")
	switch mimeType {
	case "application/json", "application/jsonl", "application/javascript", "application/xml", "application/yaml":
		return true
	}
	return strings.HasPrefix(mimeType, "text/") || strings.HasSuffix(mimeType, "+json") || strings.HasSuffix(mimeType, "+xml")
}

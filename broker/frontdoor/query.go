package frontdoor

import (
	"net/url"
	"unicode/utf8"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// Query reads the parameters of a query. They go on to plugins, which take UTF-8 alone.
func Query(raw string) (url.Values, error) {
	query, err := url.ParseQuery(raw)
	if err != nil {
		return nil, err
	}
	for name, values := range query {
		for _, value := range values {
			if !utf8.ValidString(value) {
				return nil, sdk.FieldErrorf(sdk.CodeInvalidRequest, Clipped(name), "must be UTF-8")
			}
		}
	}
	return query, nil
}

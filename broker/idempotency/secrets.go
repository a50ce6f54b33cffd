package idempotency

import (
	"encoding/json"
	"errors"
	"strings"

	"github.com/sandbox-broker/sandbox-broker/broker/store"
)

// PurgeSecrets takes out of the kept answers what earlier brokers have kept in the clear:
// the tokens that administrators were shown, and links to previews. A request that made a
// token is not carried out again for that, and is answered without the token.
func PurgeSecrets(tx store.Tx) error {
	changed := map[string]*record{} // nil for those to be removed
	err := store.Each(tx, store.Answers, func(key string, r record, err error) error {
		if err != nil || r.Answer == nil {
			return nil //nolint:nilerr // what cannot be read cannot be answered either
		}
		var body map[string]any
		if json.Unmarshal(r.Answer.Body, &body) != nil {
			return nil //nolint:nilerr // a program's own text, or none
		}
		switch {
		case r.Tenant == "" && hasText(body, "token"):
			body["token"] = ""
			cleaned, err := json.Marshal(body)
			if err != nil {
				return err
			}
			r.Answer.Body = cleaned
			changed[key] = &r
		case r.Tenant != "" && isLink(body):
			changed[key] = nil
		}
		return nil
	})
	for key, r := range changed {
		if r != nil {
			err = errors.Join(err, store.Put(tx, store.Answers, key, *r))
			continue
		}
		_, removed := take(tx, key)
		err = errors.Join(err, removed)
	}
	return err
}

// isLink knows the answer that made a link to a preview by its form.
func isLink(body map[string]any) bool {
	path, _ := body["path"].(string)
	return hasText(body, "url") && body["port"] != nil && body["expires_at"] != nil && strings.HasPrefix(path, "/preview/")
}

func hasText(body map[string]any, field string) bool {
	text, _ := body[field].(string)
	return text != ""
}

package config

import (
	"slices"
	"strings"
)

// Secrets returns the values of env(), file() and sealed() in the plugin's settings,
// and the texts that have them in it, in order and each once: what a plugin may not
// make public, whatever its schema says of the setting. An ordinary text of env(), such
// as a region, is none: if its setting is a secret one, the schema says so.
func (p *Provider) Secrets() []string {
	secrets := slices.DeleteFunc(slices.Clone(p.file.secrets), func(s string) bool { return slices.Contains(p.file.ordinary, s) })
	var all []string
	for _, a := range leaves(p.attributes) {
		if a.sensitive && !a.ordinary {
			all = append(all, secretsIn(texts(a.value), secrets)...)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// secretsIn finds secrets in texts, some of which have no secret in them, such as
// the names in a map. If none has, as when a secret was laid out anew, all count.
func secretsIn(texts, secrets []string) (found []string) {
	for _, text := range texts {
		for _, secret := range secrets {
			if len(secret) >= minSecret && strings.Contains(text, secret) {
				found = append(found, secret, text)
			}
		}
	}
	if len(found) == 0 {
		return texts
	}
	return found
}

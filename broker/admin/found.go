package admin

import (
	"context"
	"regexp"
	"strings"

	"github.com/sandbox-broker/sandbox-broker/broker/pluginhost"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// Finder looks for plugins that could be configured.
type Finder interface {
	// FindProviders are the plugins in the plugin directory that no block of the
	// configuration runs, by NotConfigured. Each is started once to describe itself.
	FindProviders(ctx context.Context) ([]Provider, error)
}

// PhaseNotConfigured is the phase of a plugin that has no block.
const PhaseNotConfigured pluginhost.Phase = "not_configured"

// NotConfigured is a plugin without a block. err says why it did not describe itself.
func NotConfigured(file pluginhost.Executable, description sdk.Description, err error) Provider {
	p := Provider{Label: LabelOf(file.Name), Executable: file, Description: description}
	p.State.Phase = PhaseNotConfigured
	p.State.Reason = "The plugin is installed, and no block of the configuration runs it."
	if err != nil {
		p.State.Reason = "The plugin is installed, and cannot be used: " + err.Error()
	}
	return p
}

var notInLabels = regexp.MustCompile(`[^a-z0-9_]+`)

// LabelOf is a label for a provider of a plugin: its name, as far as labels may have
// that.
func LabelOf(plugin string) string {
	const most = 63
	label := strings.Trim(notInLabels.ReplaceAllString(strings.ToLower(plugin), "_"), "_")
	if label == "" || label[0] < 'a' {
		label = "provider_" + label
	}
	return label[:min(len(label), most)]
}

// Available returns how all providers are, and behind them those that could be
// configured.
func (s *Service) Available(ctx context.Context) ([]Provider, error) {
	list := s.broker.AdminProviders()
	if s.finder == nil {
		return list, nil
	}
	found, err := s.finder.FindProviders(ctx)
	if err != nil {
		return nil, err
	}
	for _, p := range found {
		if !has(list, p.Label) {
			list = append(list, p)
		}
	}
	return list, nil
}

func has(list []Provider, label string) bool {
	for _, p := range list {
		if p.Label == label {
			return true
		}
	}
	return false
}

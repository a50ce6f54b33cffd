package wire

import (
	"fmt"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire/providerv1"
)

// EncodeDescription encodes what a provider says about itself.
func EncodeDescription(d sdk.Description) (*providerv1.DescribeResponse, error) {
	resp := &providerv1.DescribeResponse{Name: d.Name, Version: d.Version, Summary: d.Summary, Icon: d.Icon, Tags: d.Tags, Ephemeral: d.Ephemeral}
	for _, l := range d.Languages {
		resp.Languages = append(resp.Languages, string(l))
	}
	for _, t := range d.Templates {
		wt := &providerv1.Template{Name: t.Name, Description: t.Description}
		for _, l := range t.Languages {
			wt.Languages = append(wt.Languages, string(l))
		}
		resp.Templates = append(resp.Templates, wt)
	}
	for _, c := range d.Capabilities {
		resp.Capabilities = append(resp.Capabilities, string(c))
	}
	for _, f := range d.Schema {
		wf, err := encodeField(f)
		if err != nil {
			return nil, err
		}
		resp.Schema = append(resp.Schema, wf)
	}
	return resp, nil
}

func encodeField(f sdk.Field) (*providerv1.Field, error) {
	wf := &providerv1.Field{
		Name: f.Name, Type: string(f.Type), Required: f.Required, Secret: f.Secret, FileOnly: f.FileOnly,
		Options: f.Options, Min: f.Min, Max: f.Max, Pattern: f.Pattern,
		Label: f.Label, Description: f.Description, Placeholder: f.Placeholder,
	}
	if f.Items != nil {
		items, err := encodeField(*f.Items)
		if err != nil {
			return nil, err
		}
		wf.Items = items
	}
	wf.Repeated = f.Repeated
	for _, inner := range f.Fields {
		field, err := encodeField(inner)
		if err != nil {
			return nil, err
		}
		wf.Fields = append(wf.Fields, field)
	}
	if f.Default != nil {
		value, err := structpb.NewValue(plain(f.Default))
		if err != nil {
			return nil, fmt.Errorf("default of field %q: %w", f.Name, err)
		}
		wf.Default = value
	}
	return wf, nil
}

// EncodeSettings returns settings as they cross the wire: durations are seconds.
func EncodeSettings(s sdk.Settings) (*structpb.Struct, error) {
	return structpb.NewStruct(plain(s).(map[string]any))
}

// plain turns a setting into what structpb understands.
func plain(value any) any {
	switch v := value.(type) {
	case time.Duration:
		return v.Seconds()
	case []string:
		return anyItems(v)
	case []int:
		return anyItems(v)
	case []int64:
		return anyItems(v)
	case []float64:
		return anyItems(v)
	case map[string]string:
		m := make(map[string]any, len(v))
		for k, s := range v {
			m[k] = s
		}
		return m
	case sdk.Settings:
		m := make(map[string]any, len(v))
		for name, inner := range v {
			m[name] = plain(inner)
		}
		return m
	case []sdk.Settings:
		list := make([]any, len(v))
		for i, block := range v {
			list[i] = plain(block)
		}
		return list
	default:
		return v
	}
}

// EncodeMetrics encodes the metrics of a provider.
func EncodeMetrics(metrics []sdk.Metric) []*providerv1.Metric {
	var wms []*providerv1.Metric
	for _, m := range metrics {
		wms = append(wms, &providerv1.Metric{Name: m.Name, Help: m.Help, Kind: string(m.Kind), Labels: m.Labels, Value: m.Value})
	}
	return wms
}

// EncodeInstance encodes an instance.
func EncodeInstance(i sdk.Instance) *providerv1.Instance {
	wi := &providerv1.Instance{Id: i.ID, Template: i.Template, Labels: i.Labels, Metadata: i.Metadata}
	if !i.CreatedAt.IsZero() {
		wi.CreatedAt = timestamppb.New(i.CreatedAt)
	}
	if !i.ExpiresAt.IsZero() {
		wi.ExpiresAt = timestamppb.New(i.ExpiresAt)
	}
	return wi
}

func anyItems[T any](list []T) []any {
	items := make([]any, len(list))
	for i, item := range list {
		items[i] = item
	}
	return items
}

var (
	iconName = onceCompiled(`^[a-z0-9][a-z0-9-]{0,39}$`)
	// iconImage has nothing in it that could end the attribute or the style in
	// which a page puts it.
	iconImage = onceCompiled(`^data:image/(svg\+xml|png|webp);base64,[A-Za-z0-9+/]+={0,2}$`)
	tagForm   = onceCompiled(`^[a-z0-9][a-z0-9._-]{0,39}$`)
)

// CheckAppearance checks what a Description says for lists of providers: Icon and
// Tags. The broker refuses a plugin whose are not of their form.
func CheckAppearance(icon string, tags []string) error {
	switch {
	case len(icon) > sdk.MaxIcon:
		return fmt.Errorf("the icon is larger than %d KiB", sdk.MaxIcon>>10)
	case icon != "" && !iconName().MatchString(icon) && !iconImage().MatchString(icon):
		return fmt.Errorf("the icon %.70q is neither a name of the form %s nor a data URI of an image (svg+xml, png or webp) in base64", icon, iconName())
	case len(tags) > sdk.MaxTags:
		return fmt.Errorf("%d tags, more than %d", len(tags), sdk.MaxTags)
	}
	for i, tag := range tags {
		switch {
		case !tagForm().MatchString(tag):
			return fmt.Errorf("the tag %.70q is not of the form %s", tag, tagForm())
		case slices.Contains(tags[:i], tag):
			return fmt.Errorf("the tag %q stands there twice", tag)
		}
	}
	return nil
}

package sdk

import (
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/sandbox-broker/sandbox-broker/sdk/wire/providerv1"
)

func describeToWire(d Description) (*providerv1.DescribeResponse, error) {
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
		wf, err := fieldToWire(f)
		if err != nil {
			return nil, err
		}
		resp.Schema = append(resp.Schema, wf)
	}
	return resp, nil
}

func fieldToWire(f Field) (*providerv1.Field, error) {
	wf := &providerv1.Field{
		Name: f.Name, Type: string(f.Type), Required: f.Required, Secret: f.Secret, FileOnly: f.FileOnly,
		Options: f.Options, Min: f.Min, Max: f.Max, Pattern: f.Pattern,
		Label: f.Label, Description: f.Description, Placeholder: f.Placeholder,
	}
	if f.Items != nil {
		items, err := fieldToWire(*f.Items)
		if err != nil {
			return nil, err
		}
		wf.Items = items
	}
	wf.Repeated = f.Repeated
	for _, inner := range f.Fields {
		field, err := fieldToWire(inner)
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

// Wire returns the settings as they cross the wire: durations are seconds.
func (s Settings) Wire() (*structpb.Struct, error) {
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
	case Settings:
		m := make(map[string]any, len(v))
		for name, inner := range v {
			m[name] = plain(inner)
		}
		return m
	case []Settings:
		list := make([]any, len(v))
		for i, block := range v {
			list[i] = plain(block)
		}
		return list
	default:
		return v
	}
}

func metricsToWire(metrics []Metric) []*providerv1.Metric {
	var wms []*providerv1.Metric
	for _, m := range metrics {
		wms = append(wms, &providerv1.Metric{Name: m.Name, Help: m.Help, Kind: string(m.Kind), Labels: m.Labels, Value: m.Value})
	}
	return wms
}

func instanceToWire(i Instance) *providerv1.Instance {
	wi := &providerv1.Instance{Id: i.ID, Template: i.Template, Labels: i.Labels, Metadata: i.Metadata}
	if !i.CreatedAt.IsZero() {
		wi.CreatedAt = timestamppb.New(i.CreatedAt)
	}
	if !i.ExpiresAt.IsZero() {
		wi.ExpiresAt = timestamppb.New(i.ExpiresAt)
	}
	return wi
}

func resultToWire(r ExecuteResult) *providerv1.ExecuteResult {
	return &providerv1.ExecuteResult{
		Status:          string(r.Status),
		ExitCode:        int32(r.ExitCode),
		Result:          r.Result,
		Duration:        durationpb.New(r.Duration),
		Truncated:       r.Truncated,
		PeakMemoryBytes: r.PeakMemoryBytes,
		Detail:          r.Detail,
		Findings:        findingsToWire(r.Findings),
	}
}

func findingsToWire(findings []Finding) []*providerv1.Finding {
	var wf []*providerv1.Finding
	for _, f := range findings[:min(len(findings), MaxFindings)] {
		wf = append(wf, &providerv1.Finding{
			Line: int32(f.Line), Column: int32(f.Column),
			Rule: cutText(f.Rule, MaxFindingText), Message: cutText(f.Message, MaxFindingText),
		})
	}
	return wf
}

// cutText returns at most limit bytes of a text, in valid UTF-8 as the wire wants
// it.
func cutText(s string, limit int) string {
	if len(s) > limit {
		s = s[:limit]
	}
	return strings.ToValidUTF8(s, "")
}

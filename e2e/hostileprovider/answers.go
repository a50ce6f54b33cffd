package main

import (
	"bytes"
	"fmt"
	"math"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/sandbox-broker/sandbox-broker/sdk/wire/providerv1"
)

// someAnswer are untrue answers to calls that have one answer.
func someAnswer() map[string]func(*call) {
	return map[string]func(*call){
		// Describe
		"describe_fields": func(c *call) {
			d := description()
			for i := range 100_000 {
				d.Schema = append(d.Schema, &providerv1.Field{Name: fmt.Sprintf("f%d", i), Type: "string"})
			}
			c.reply(d)
		},
		"describe_twice": func(c *call) {
			d := description()
			d.Schema = append(d.Schema, d.Schema...)
			c.reply(d)
		},
		"describe_patterns": func(c *call) { // 200 MB each once they are compiled
			d := description()
			for i := range 199 {
				d.Schema = append(d.Schema, &providerv1.Field{Name: fmt.Sprintf("f%d", i), Type: "string", Pattern: "(" + strings.Repeat("a", 980) + "){1000}"})
			}
			c.reply(d)
		},
		"describe_nesting": func(c *call) {
			value := structpb.NewNullValue()
			for range 5000 {
				value = structpb.NewListValue(&structpb.ListValue{Values: []*structpb.Value{value}})
			}
			d := description()
			d.Schema[0].Default = value
			c.reply(d)
		},
		"describe_numbers": func(c *call) {
			d := description()
			d.Schema[0] = &providerv1.Field{Name: "secret", Type: "integer", Default: structpb.NewNumberValue(math.NaN())}
			c.reply(d)
		},
		"describe_texts": func(c *call) {
			d := description()
			d.Summary, d.Version = evil, evil
			c.reply(d)
		},
		"describe_template": func(c *call) {
			d := description()
			d.Templates[0].Description = strings.Repeat("x", 1<<20)
			c.reply(d)
		},
		"describe_crowd": func(c *call) { // empty languages
			c.whole(0, bytes.Repeat([]byte{0x22, 0}, 900_000))
		},
		"describe_reserved": func(c *call) {
			d := description()
			d.Schema[0].Name = "sha256"
			c.reply(d)
		},
		// Health
		"health_metrics": func(c *call) {
			c.reply(&providerv1.HealthResponse{Healthy: true, Metrics: []*providerv1.Metric{{Name: "m", Help: "h", Kind: "gauge", Value: math.NaN()}}})
		},
		"health_crowd": func(c *call) { // empty metrics
			c.whole(0, bytes.Repeat([]byte{0x22, 0}, 400_000))
		},
		"health_details": func(c *call) {
			c.reply(&providerv1.HealthResponse{Healthy: true, Details: map[string]string{"k": strings.Repeat("x", 1<<20)}})
		},
		"health_reason": func(c *call) { c.reply(&providerv1.HealthResponse{Reason: evil}) },
		// Create
		"create_same": func(c *call) {
			c.reply(&providerv1.CreateResponse{Instance: &providerv1.Instance{Id: c.plugin.anybody()}})
		},
		"create_prefix": func(c *call) { // IDs of which each is the beginning of the next
			c.reply(&providerv1.CreateResponse{Instance: c.plugin.create("i"+c.plugin.prefix(), read(c, &providerv1.CreateRequest{}))})
		},
		"create_control": func(c *call) { c.created(&providerv1.Instance{Id: "a\x1b[31m\n"}) },
		"create_long":    func(c *call) { c.created(&providerv1.Instance{Id: strings.Repeat("x", 1<<20)}) },
		"create_path":    func(c *call) { c.created(&providerv1.Instance{Id: "../../etc"}) },
		"create_nothing": func(c *call) { c.created(nil) },
		"create_crowd": func(c *call) { // metadata of empty names and values
			c.whole(0, bytes.Repeat([]byte{0x0a, 2, 0x22, 0}, 250_000))
		},
		"create_past": func(c *call) {
			i := c.plugin.create("past", read(c, &providerv1.CreateRequest{}))
			i.ExpiresAt = &timestamppb.Timestamp{Seconds: 1}
			c.reply(&providerv1.CreateResponse{Instance: i})
		},
		"create_template": func(c *call) { c.created(&providerv1.Instance{Id: "a", Template: strings.Repeat("x", 1<<20)}) },
		"create_times": func(c *call) {
			p, req := c.plugin, read(c, &providerv1.CreateRequest{})
			i := p.create("times", req)
			i.CreatedAt, i.ExpiresAt = &timestamppb.Timestamp{Seconds: math.MaxInt64}, &timestamppb.Timestamp{Seconds: math.MinInt64, Nanos: -1}
			c.reply(&providerv1.CreateResponse{Instance: i})
		},
		// List
		"list_crowd": func(c *call) { // empty instances, in one piece
			c.whole(0, bytes.Repeat([]byte{0x0a, 0}, 3<<20))
		},
		"list_many": func(c *call) {
			list := &providerv1.ListResponse{}
			for i := range 50_000 {
				list.Instances = append(list.Instances, &providerv1.Instance{Id: fmt.Sprint("i", i)})
			}
			c.reply(list)
		},
		"list_twice": func(c *call) {
			c.reply(&providerv1.ListResponse{Instances: []*providerv1.Instance{{Id: "a"}, {Id: "a"}}})
		},
		"list_strangers": func(c *call) { // instances that carry the labels of other people's
			list := &providerv1.ListResponse{}
			for _, i := range c.plugin.list() {
				i.Id += "x"
				list.Instances = append(list.Instances, i)
			}
			c.reply(list)
		},
		"list_nothing": func(c *call) { c.reply(&providerv1.ListResponse{}) },
		"list_bad_id": func(c *call) {
			c.reply(&providerv1.ListResponse{Instances: []*providerv1.Instance{{Id: "a\n\x1b[31m"}}})
		},
		// InstanceMetrics
		"metrics_nan": func(c *call) {
			c.reply(&providerv1.InstanceMetricsResponse{CpuLimit: math.NaN()})
		},
		"metrics_negative": func(c *call) {
			c.reply(&providerv1.InstanceMetricsResponse{CpuLimit: -1, MemoryBytes: -5, Processes: math.MinInt64})
		},
		// ListFiles and ListCommands
		"files_empty": func(c *call) {
			for c.send(&providerv1.ListFilesResponse{}) {
			}
		},
		"files_endless": func(c *call) {
			file := &providerv1.FileInfo{Path: "/workspace/x", Type: "file", Size: -1}
			for c.send(&providerv1.ListFilesResponse{Files: []*providerv1.FileInfo{file, file, file}}) {
			}
		},
		"commands_odd": func(c *call) {
			c.reply(&providerv1.ListCommandsResponse{Commands: []*providerv1.Command{{Id: "c", State: "asleep", ExitCode: -1, StdoutBytes: -1}}})
		},
		// StreamStdio, of go-plugin
		"stdio_endless": func(c *call) {
			data := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), 1)
			data = protowire.AppendBytes(protowire.AppendTag(data, 2, protowire.BytesType), bytes.Repeat([]byte("z"), 1<<20))
			for c.frame(0, uint32(len(data)), data) {
			}
		},
		"stdio_channel": func(c *call) {
			for c.frame(0, 2, []byte{0x08, 0x63}) {
			}
		},
		// StartStream, of go-plugin: further connections without end
		"further_connections": func(c *call) {
			for id := uint64(1); ; id++ {
				data := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), id)
				if !c.frame(0, uint32(len(data)), data) {
					return
				}
			}
		},
	}
}

func (c *call) created(i *providerv1.Instance) {
	c.send(&providerv1.CreateResponse{Instance: i})
	c.end(codes.OK, "", nil)
}

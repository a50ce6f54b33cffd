package config

import (
	"fmt"
	"maps"
	"time"

	"github.com/hashicorp/hcl/v2/hclsyntax"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// Bounds of quotas. What is counted in billionths of a unit must fit into 63 bits.
const (
	maxQuotaCount = 1_000_000_000
	maxQuotaMoney = 1_000_000_000
	maxQuotaTime  = 1_000_000 * time.Hour
	// maxSnapshotBytes is a whole number in any JSON.
	maxSnapshotBytes = 1 << 50
	maxQuotaBytes    = 1 << 50
)

func quotaSchema() sdk.Schema {
	count := func(name string, most float64, description string) sdk.Field {
		return sdk.Field{Name: name, Type: sdk.TypeInteger, Min: sdk.Bound(1), Max: sdk.Bound(most), Description: description}
	}
	number := func(name string, least, most float64, description string) sdk.Field {
		return sdk.Field{Name: name, Type: sdk.TypeNumber, Min: sdk.Bound(least), Max: sdk.Bound(most), Description: description}
	}
	paused := count("max_paused", 100_000, "Paused instances at a time that hold no memory. They are none of max_instances.")
	paused.Default = int64(20)
	concurrent := count("max_concurrent", 100_000, "Executions in progress at a time.")
	concurrent.Default = int64(10)
	snapshots := count("max_snapshots", 100_000, "Snapshots that are kept at a time.")
	snapshots.Default = int64(20)
	snapshotBytes := count("max_snapshot_bytes", maxSnapshotBytes, "What the snapshots may take where they are kept, all together, in bytes.")
	snapshotBytes.Default = int64(10 << 30)
	return sdk.Schema{
		count("max_instances", 100_000, "Instances at a time, those that are being made included."),
		paused,
		concurrent,
		number("requests_per_second", 0.01, 1_000_000, "Requests a second, on average; as many as in one second may come at once."),
		count("executions_per_day", maxQuotaCount, "Executions begun in a day of UTC."),
		{
			Name: "execution_seconds_per_day", Type: sdk.TypeDuration, Min: sdk.Bound(1), Max: sdk.Bound(maxQuotaTime.Seconds()),
			Description: `The time of all executions of a day of UTC together, in seconds or such as "10h".`,
		},
		count("max_memory_mb", 10_000_000, "MiB of memory of one instance."),
		number("max_cpus", 0.01, 10_000, "Processors of one instance."),
		number("money_per_day", 0.000001, maxQuotaMoney, "What the instances may cost in a day of UTC, in the unit of cost_per_second."),
		number("money_per_month", 0.000001, maxQuotaMoney, "The same in a month of UTC."),
		snapshots,
		snapshotBytes,
		count("max_volumes", 1000, "Volumes that exist at a time."),
		count("max_volume_bytes", maxQuotaBytes, "Bytes of all volumes together, by their sizes."),
	}
}

// quotaReader reads the quota blocks: the one for all tenants, and each tenant's
// own.
type quotaReader struct {
	parser *parser
	// settings of the block for all tenants, and what they make.
	settings sdk.Settings
	usual    Quota
}

// newQuotaReader reads the block for all tenants, wherever it stands among blocks.
func newQuotaReader(p *parser, blocks hclsyntax.Blocks) *quotaReader {
	r := &quotaReader{parser: p}
	block := emptyBlock("quota")
	for _, b := range blocks {
		if b.Type == "quota" {
			block = b
			break // a second one is reported as such
		}
	}
	r.settings = p.readLeaf(block, quotaSchema()).Settings
	r.usual = r.decode(r.settings, block)
	return r
}

// read returns a tenant's quota, and reads the other blocks of the tenant.
func (r *quotaReader) read(tenant *hclsyntax.Block, others map[string]blockKind) Quota {
	quota := r.usual
	var inner hclsyntax.Blocks
	for _, block := range tenant.Body.Blocks {
		if _, setting := tenantSchema().Field(block.Type); setting {
			r.parser.fail(block.TypeRange, "Block not expected", fmt.Sprintf("%s is a setting: write it with an equals sign, %s = ...", block.Type, block.Type))
			continue
		}
		inner = append(inner, block)
	}
	kinds := maps.Clone(others)
	kinds["quota"] = blockKind{read: func(block *hclsyntax.Block) {
		// Its own defaults would hide what all tenants have.
		schema := quotaSchema()
		for i := range schema {
			schema[i].Default = nil
		}
		settings := maps.Clone(r.settings)
		maps.Copy(settings, r.parser.readLeaf(block, schema).Settings)
		quota = r.decode(settings, block)
	}}
	r.parser.readBlocks(inner, kinds)
	return quota
}

func (r *quotaReader) decode(settings sdk.Settings, block *hclsyntax.Block) Quota {
	var quota Quota
	r.parser.decode(section{Settings: settings}, &quota, block.DefRange())
	return quota
}

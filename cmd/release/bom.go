package main

import (
	"bytes"
	"cmp"
	"fmt"
	"path/filepath"
	"slices"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"github.com/CycloneDX/cyclonedx-gomod/pkg/generate/bin"
	"github.com/rs/zerolog"
)

// boms writes one list for each program, with the name of the program.
func (r *release) boms() error {
	for _, program := range programs {
		name := filepath.Base(program)
		content, err := r.bom(name, []string{program})
		if err != nil {
			return err
		}
		if err := r.write(r.name()+"."+name+".cdx.json", content); err != nil {
			return err
		}
	}
	return nil
}

// bom lists the modules that programs are made of, as CycloneDX. They are read from the
// programs themselves, so that nothing is in it that is not in them.
func (r *release) bom(name string, programs []string) ([]byte, error) {
	all := cdx.NewBOM()
	all.Metadata = &cdx.Metadata{
		Timestamp: r.time.Format("2006-01-02T15:04:05Z"),
		Component: &cdx.Component{BOMRef: name, Type: cdx.ComponentTypeApplication, Name: name, Version: r.version},
	}
	components, dependencies := []cdx.Component{}, []cdx.Dependency{}
	mains := []string{}
	for _, program := range programs {
		generator, err := bin.NewGenerator(filepath.Join(r.bin, program), bin.WithIncludeStdlib(true), bin.WithLogger(zerolog.Nop()))
		if err != nil {
			return nil, err
		}
		one, err := generator.Generate()
		if err != nil {
			return nil, fmt.Errorf("what is %s made of: %w", program, err)
		}
		main := one.Metadata.Component
		was := main.BOMRef
		main.BOMRef, main.Name = filepath.Base(program), filepath.Base(program)
		main.Properties = one.Metadata.Properties
		mains = append(mains, main.BOMRef)
		components = append(components, *main)
		components = append(components, *one.Components...)
		for _, d := range *one.Dependencies {
			if d.Ref == was {
				d.Ref = main.BOMRef
			}
			dependencies = append(dependencies, d)
		}
	}
	// Programs have modules in common.
	slices.SortStableFunc(components, func(a, b cdx.Component) int { return cmp.Compare(a.BOMRef, b.BOMRef) })
	components = slices.CompactFunc(components, func(a, b cdx.Component) bool { return a.BOMRef == b.BOMRef })
	dependencies = append(dependencies, cdx.Dependency{Ref: name, Dependencies: &mains})
	slices.SortStableFunc(dependencies, func(a, b cdx.Dependency) int { return cmp.Compare(a.Ref, b.Ref) })
	dependencies = slices.CompactFunc(dependencies, func(a, b cdx.Dependency) bool { return a.Ref == b.Ref })
	all.Components, all.Dependencies = &components, &dependencies
	var content bytes.Buffer
	encoder := cdx.NewBOMEncoder(&content, cdx.BOMFileFormatJSON)
	encoder.SetPretty(true)
	if err := encoder.Encode(all); err != nil {
		return nil, err
	}
	return content.Bytes(), nil
}

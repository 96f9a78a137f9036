# make lab       raise the emulated site and run the real playbooks on it
# make check     lint, types and the tests of what you changed: under a minute
# make test      all tests that run in minutes: lint, unit tests, booted plans, Molecule
# make test-all  and those that take longer
# make bench-plan  benchmarks of planning, which need no machine
# make lab-down  remove all that `make lab` made

SHELL := /bin/bash -o pipefail
.DEFAULT_GOAL := help
bin := .venv/bin
cache := .cache/lab
# Resets machines that the emulator loses in a boot, which takes up to four minutes where all share two cores.
watch := roles/lab/files/watch-consoles $(cache)/lab "" 300
as_root := $(if $(filter 0,$(shell id -u)),,sudo env PATH="$$PATH" )
export PATH := $(CURDIR)/$(bin):$(PATH)
# Ansible and Molecule show what they do as they do it.
export PYTHONUNBUFFERED := 1

.PHONY: help check environments types thorough mutation lab lab-down packages images test test-all lint unit fleet fleet-long identity boot image image-boot boot-loader dcb sanity docs galaxy molecule molecule-long bench bench-plan clean

help:
	@sed -n 's/^# //;/^make/p' Makefile

packages:
	@roles/lab/files/install-packages bindep.txt

.venv/.runtime: requirements.txt | packages
	@echo "making the virtual environment in .venv"
	python3 -m venv .venv
	$(bin)/pip install --quiet -r requirements.txt
	touch $@

.venv/.tests: requirements-dev.txt .venv/.runtime
	$(bin)/pip install --quiet -r requirements-dev.txt
	touch $@

# What builds the documentation and judges the archive wants other versions.
.venv/publish/.done: requirements-publish.txt | packages
	python3 -m venv .venv/publish
	.venv/publish/bin/pip install --quiet -r requirements-publish.txt
	touch $@

# The long part of the first run, on the screen as it goes; what comes after finds the images made.
images: packages .venv/.runtime
	ansible-playbook -i inventories/lab -e '{lab_machines: [hv01]}' playbooks/lab_images.yml

lab: packages .venv/.runtime
	$(watch) ansible-playbook -i inventories/lab playbooks/lab.yml
	$(watch) ansible-playbook -i inventories/lab playbooks/site.yml
	$(watch) ansible-playbook -i inventories/lab playbooks/boot_servers.yml playbooks/node_images.yml
	$(watch) ansible-playbook -i inventories/lab playbooks/node_identities.yml playbooks/lab_approve.yml playbooks/node_identities.yml
	[ -e $(cache)/lab/identities/opened ] || $(watch) ansible-playbook -i inventories/lab --limit nodes,localhost playbooks/lab_break.yml
	@cat proofs/*.txt; echo; echo "The whole report:"; ls proofs/*.html

lab-down: .venv/.runtime
	ansible-playbook -i inventories/lab playbooks/lab_down.yml
	$(as_root)rm -rf $(cache)
	rm -rf .cache/facts proofs

check: packages .venv/.tests
	tests/changed

test:
	tests/phases lint+sanity docs+galaxy unit fleet identity boot image molecule

# Besides: what takes long, tries more, or tells no more than a part of `test` does of the same code.
test-all: test
	tests/phases thorough fleet-long image-boot boot-loader dcb molecule-long bench

environments: packages .venv/.tests .venv/publish/.done

lint: packages .venv/.tests
	yamllint .
	ruff check .
	ruff format --check .
	ansible-lint

types: packages .venv/.tests
	tests/types

unit: packages .venv/.tests
	pytest -n 2

# The unit tests with ten times the examples for each property.
thorough: packages .venv/.tests
	pytest -n 2 --timeout 3600 --hypothesis-profile thorough

# The share of small mistakes in the library that the unit tests notice; hours for all rooms.
mutation: packages .venv/.tests
	tests/mutation/run.py

# Rollouts, re-imaging and the fabric's policy: whole playbooks on nodes and switches that are made up.
fleet: packages .venv/.tests
	pytest -n 2 --dist worksteal --timeout 1800 -m 'fleet and not long'

fleet-long: packages .venv/.tests
	pytest -n 2 --dist worksteal --timeout 1800 -m long

# Nodes' secrets, with TPMs in software.
identity: packages .venv/.tests
	pytest --timeout 1800 -n 2 tests/identity

# The plans of all recordings under QEMU, with both firmwares.
boot: packages .venv/.tests
	pytest -v --timeout 1800 -n 2 tests/boot

# Stateless images, built with the real tools; needs root.
image: packages .venv/.tests
	$(as_root)pytest -v --timeout 1800 tests/image

# A node that boots an image from its firmware on, images that it must refuse, and those of other distributions, which
# are built as root.
image-boot: packages .venv/.tests
	$(as_root)pytest -v --timeout 3600 tests/image_boot

# Kernel arguments on hosts that boot as RHEL does, through a GRUB that does so, in an emulated machine.
boot-loader: packages .venv/.tests
	pytest -v --timeout 1800 tests/boot_loader

# A driver's DCB, by the real dcb, in an emulated machine.
dcb: packages .venv/.tests
	pytest -v --timeout 1800 tests/dcb

sanity: packages .venv/.tests
	tests/sanity/run

# The documentation as a site; fails on a dead link.
docs: export PATH := $(CURDIR)/.venv/publish/bin:$(PATH)
docs: .venv/publish/.done
	docs/site/role_readmes.py --check
	docs/site/build

# The collection as Galaxy and ansible-builder see it.
galaxy: export PATH := $(CURDIR)/.venv/publish/bin:$(PATH)
galaxy: .venv/publish/.done
	tests/galaxy/run

molecule: packages .venv/.tests images
	molecule test
	molecule/run node_image gpu_host gpu_vm

molecule-long: packages .venv/.tests images
	molecule/run gpu_guest interrupted node_boot roce_path

bench: packages .venv/.tests images
	benchmarks/run

bench-plan: .venv/.runtime
	benchmarks/run plan

clean: lab-down
	$(as_root)rm -rf .venv .cache

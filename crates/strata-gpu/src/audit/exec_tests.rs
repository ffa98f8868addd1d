//! Small programs as compilers write them, clean ones and broken ones.

use super::super::disassembly::{Function, Instruction};
use super::check;

/// A program: one instruction a line, `name:` labels, branches to labels.
fn program(text: &str) -> Function {
    let lines = || text.lines().map(str::trim).filter(|l| !l.is_empty());
    let mut labels = Vec::new();
    let mut count = 0;
    for line in lines() {
        match line.strip_suffix(':') {
            Some(label) => labels.push((label, count)),
            None => count += 1,
        }
    }
    let instruction = |line: &str| {
        let target = line.contains("branch").then(|| line.split_whitespace().nth(1)).flatten();
        let place = |t| labels.iter().find(|(l, _)| *l == t).expect("a label of the program").1;
        Instruction { text: line.to_string(), target: target.map(place) }
    };
    let code = lines().filter(|l| !l.ends_with(':')).map(instruction).collect();
    Function { name: "k".into(), code }
}

#[track_caller]
fn clean(text: &str) {
    assert_eq!(check(&program(text)), []);
}

#[track_caller]
fn broken(text: &str, instructions: &[&str]) {
    let found: Vec<String> = check(&program(text)).into_iter().filter(|v| !v.unreached).map(|v| v.text).collect();
    assert_eq!(found, instructions);
}

const DPP: &str = "v_add_f32_dpp v1, v0, v0 row_xmask:1 row_mask:0xf bank_mask:0xf";

#[test]
fn straight_code_and_uniform_branches_are_clean() {
    clean(&format!(
        "s_load_b64 s[0:1], s[0:1], 0x0
         s_cmp_lt_i32 s4, 1
         s_cbranch_scc1 end
         loop:
         {DPP}
         v_cmp_gt_f32_e32 vcc_lo, s2, v1
         s_and_b32 vcc_lo, exec_lo, vcc_lo
         s_cbranch_vccz skip
         v_wmma_i32_16x16x16_iu8 v[0:7], v[8:9], v[10:11], v[0:7]
         skip:
         s_add_i32 s4, s4, -1
         s_cmp_lg_u32 s4, 0
         s_cbranch_scc1 loop
         end:
         ds_bpermute_b32 v0, v1, v2
         s_endpgm"
    ));
}

#[test]
fn a_saved_and_restored_region_is_left_again() {
    clean(&format!(
        "s_mov_b32 s0, exec_lo
         v_cmpx_eq_u32_e32 0, v0
         s_cbranch_execz join
         global_store_b32 v1, v2, s[2:3]
         join:
         s_or_b32 exec_lo, exec_lo, s0
         {DPP}
         v_cmp_gt_u32_e32 vcc_lo, 16, v0
         s_and_saveexec_b32 s1, vcc_lo
         global_store_b32 v1, v2, s[2:3]
         s_mov_b32 exec_lo, s1
         v_permlanex16_b32 v1, v2, s4, s5
         s_endpgm"
    ));
}

#[test]
fn inside_a_region_it_is_found() {
    broken(
        &format!(
            "v_cmp_eq_u32_e32 vcc_lo, 0, v0
             s_and_saveexec_b32 s0, vcc_lo
             s_cbranch_execz join
             v_permlanex16_b32 v1, v2, s4, s5
             join:
             s_or_b32 exec_lo, exec_lo, s0
             {DPP}
             s_endpgm"
        ),
        &["v_permlanex16_b32 v1, v2, s4, s5"],
    );
    broken(
        "v_cmpx_eq_u32_e32 0, v0
         v_wmma_f32_16x16x16_f16 v[0:7], v[8:11], v[12:15], v[0:7]
         s_endpgm",
        &["v_wmma_f32_16x16x16_f16 v[0:7], v[8:11], v[12:15], v[0:7]"],
    );
}

/// What LLVM 19 made of `s = wave_sum(s); if (lane == 0) lds[wave] = s;`: the exchange sank below the branch.
#[test]
fn the_known_miscompile_is_found() {
    broken(
        "v_cmp_eq_u32_e64 s4, 0, v5
         s_and_saveexec_b32 s6, s4
         s_cbranch_execz done
         s_mov_b32 s7, 0x76543210
         v_permlanex16_b32 v2, v1, s7, 0xfedcba98
         v_add_f32_e32 v1, v1, v2
         ds_store_b32 v3, v1
         done:
         s_or_b32 exec_lo, exec_lo, s6
         s_endpgm",
        &["v_permlanex16_b32 v2, v1, s7, 0xfedcba98"],
    );
}

#[test]
fn else_branches_narrow_and_join() {
    let text = |inside: &str, after: &str| {
        format!(
            "v_cmp_gt_u32_e32 vcc_lo, 16, v0
             s_and_saveexec_b32 s0, vcc_lo
             s_xor_b32 s0, exec_lo, s0
             s_cbranch_execz other
             v_mov_b32_e32 v1, 0
             other:
             s_and_not1_saveexec_b32 s0, s0
             s_cbranch_execz join
             {inside}
             join:
             s_or_b32 exec_lo, exec_lo, s0
             {after}
             s_endpgm"
        )
    };
    clean(&text("v_mov_b32_e32 v1, 1", DPP));
    broken(&text(DPP, "s_nop 0"), &[DPP]);
}

/// A loop that lanes leave at different times; `s1` gathers those that left.
#[test]
fn divergent_loops_narrow_and_join() {
    let text = |inside: &str, after: &str| {
        format!(
            "s_mov_b32 s1, 0
             loop:
             {inside}
             v_cmp_le_i32_e32 vcc_lo, v2, v3
             s_or_b32 s1, vcc_lo, s1
             s_and_not1_b32 exec_lo, exec_lo, s1
             s_cbranch_execnz loop
             s_or_b32 exec_lo, exec_lo, s1
             {after}
             s_endpgm"
        )
    };
    clean(&text("v_add_nc_u32_e32 v2, 1, v2", DPP));
    broken(&text(DPP, "s_nop 0"), &[DPP]);
}

#[test]
fn nested_regions_join_one_by_one() {
    let text = |between: &str, after: &str| {
        format!(
            "v_cmp_gt_u32_e32 vcc_lo, 16, v0
             s_and_saveexec_b32 s0, vcc_lo
             s_cbranch_execz outer
             v_cmp_gt_u32_e32 vcc_lo, 8, v0
             s_and_saveexec_b32 s1, vcc_lo
             s_cbranch_execz inner
             v_mov_b32_e32 v1, 0
             inner:
             s_or_b32 exec_lo, exec_lo, s1
             {between}
             outer:
             s_or_b32 exec_lo, exec_lo, s0
             {after}
             s_endpgm"
        )
    };
    clean(&text("v_mov_b32_e32 v1, 1", DPP));
    broken(&text(DPP, "s_nop 0"), &[DPP]);
}

/// EXEC kept in a lane of a vector register, as when scalar registers run out.
#[test]
fn spilled_masks_are_followed() {
    let text = |lane: u32| {
        format!(
            "s_mov_b32 s0, exec_lo
             v_writelane_b32 v9, s0, 3
             v_cmpx_eq_u32_e32 0, v0
             v_writelane_b32 v9, exec_lo, 4
             s_mov_b32 s0, 7
             v_readlane_b32 s0, v9, {lane}
             s_mov_b32 exec_lo, s0
             {DPP}
             s_endpgm"
        )
    };
    clean(&text(3));
    broken(&text(4), &[DPP]);
}

#[test]
fn whole_wave_mode_is_clean() {
    clean(&format!(
        "v_cmpx_eq_u32_e32 0, v0
         s_or_saveexec_b32 s0, -1
         {DPP}
         s_mov_b32 exec_lo, s0
         s_endpgm"
    ));
}

/// Lanes that ended early are off for the rest.
#[test]
fn an_early_return_leaves_the_rest_masked() {
    broken(
        &format!(
            "v_cmpx_gt_u32_e32 s4, v0
             s_cbranch_execz end
             {DPP}
             end:
             s_endpgm"
        ),
        &[DPP],
    );
}

#[test]
fn code_behind_many_uniform_exits_is_reached() {
    let exits = "s_cmp_eq_u32 s4, s5\n s_cbranch_scc1 end\n".repeat(40);
    clean(&format!("{exits} {DPP}\n end:\n s_endpgm"));
    broken(&format!("{exits} v_cmpx_eq_u32_e32 0, v0\n {DPP}\n end:\n s_endpgm"), &[DPP]);
}

#[test]
fn unreachable_ones_are_said_to_be_unknown() {
    let found = check(&program(&format!("s_endpgm\n {DPP}")));
    assert!(matches!(&found[..], [v] if v.unreached && v.at == 1));
}
